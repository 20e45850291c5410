"""A plain evaluator of MRQL over Python lists, which shares nothing with the translation but the tree.

A bag is a Bag, a list a list, a record a dict, a row of a source a Row, a value of a data type a Tagged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree

from deltafold.language.mrql.syntax import tree as T
from tests.mrql.oracle.conversions import converted, split_line
from tests.mrql.oracle.functions import ARITHMETIC, COMPARISONS, SCALARS
from tests.mrql.oracle.selects import REPEATED, Selects
from tests.mrql.oracle.values import (
    AGGREGATES,
    Bag,
    Closure,
    Env,
    EvaluationError,
    Row,
    Tagged,
    Xml,
    aggregate,
    inserted,
    joined,
    member,
    ordered,
    pair,
    part,
    same,
)


class Reference(Selects):
    """A program over tables: name → rows."""

    def __init__(self, tables: Mapping[str, Sequence[Row]], args: Sequence[str] = ()) -> None:
        self.tables = {name.lower(): Bag(rows) for name, rows in tables.items()}
        self.args, self.globals = list(args), Env()
        self.macros: dict[str, T.MacroDefinition] = {}
        self.aggregations: dict[str, T.AggregationDefinition] = {}
        self.constructors = set[str]()

    def run(self, items: Sequence[T.Node]) -> Any:
        """The value of the last query."""
        answer = None
        for item in items:
            match item:
                case T.Define(name=name, value=value):
                    self.globals[name] = (
                        self.source(value, name) if isinstance(value, T.FunctionCall) else self.eval(value, {})
                    )
                case T.FunctionDefinition(name=name, parameters=parameters, body=body):
                    self.globals[name] = Closure(parameters, body, {})
                case T.MacroDefinition(name=name):
                    self.macros[name] = item
                case T.AggregationDefinition(name=name):
                    self.aggregations[name] = item
                case T.DataDefinition(alternatives=alternatives):
                    self.constructors |= {each.name for each in alternatives}
                case T.Evaluate(value=value):
                    answer = self.source(value, "") if isinstance(value, T.FunctionCall) else self.eval(value, {})
                case _:
                    pass
        return answer

    def source(self, node: T.FunctionCall, name: str) -> Any:
        """A source by the name of its definition or file, else a call."""
        if node.name not in ("source", "stream"):
            return self.eval(node, {})
        kind, path, *rest = node.arguments
        assert isinstance(kind, T.Name) and isinstance(path, T.Literal)
        found = self.tables.get(name.lower())
        found = self.tables[PurePosixPath(str(path.value)).stem.lower()] if found is None else found
        return found if kind.name.lower() == "binary" else Bag(split_line(row, *rest) for row in found)

    def eval(self, node: T.Node, env: Env) -> Any:
        for repeated, value in env.get(REPEATED, ()):
            if repeated == node:
                return value
        form = type(node).__name__.lower()
        return getattr(self, "lambda_form" if form == "lambda" else form)(node, env)

    # ---- forms

    def name(self, node: T.Name, env: Env) -> Any:
        if node.name in env:
            known = env[node.name]
            return known() if callable(known) else known
        if node.name in self.globals:
            return self.globals[node.name]
        if node.name == "args":
            return self.args
        return (
            {"true": True, "false": False}[node.name]
            if node.name in ("true", "false")
            else self.tables[node.name.lower()]
        )

    def literal(self, node: T.Literal, env: Env) -> Any:
        return node.value

    def tupleof(self, node: T.TupleOf, env: Env) -> Any:
        return tuple(self.eval(item, env) for item in node.items)

    def recordof(self, node: T.RecordOf, env: Env) -> Any:
        return {name: self.eval(value, env) for name, value in zip(node.names, node.values, strict=True)}

    def collectionof(self, node: T.CollectionOf, env: Env) -> Any:
        return (Bag if node.bag else list)(self.eval(item, env) for item in node.items)

    def ifelse(self, node: T.IfElse, env: Env) -> Any:
        return self.eval(node.yes if self.eval(node.condition, env) is True else node.no, env)

    def let(self, node: T.Let, env: Env) -> Any:
        names = self.bind(node.pattern, self.eval(node.value, env), {}, env)
        assert names is not None
        return self.eval(node.body, self.extended(env, names))

    def binary(self, node: T.Binary, env: Env) -> Any:
        a, b = self.eval(node.left, env), self.eval(node.right, env)
        match node.operator:
            case "and":
                return False if a is False or b is False else None if a is None or b is None else True
            case "or":
                return True if a is True or b is True else None if a is None or b is None else False
            case "=":
                return same(a, b)
            case "<>":
                equal = same(a, b)
                return None if equal is None else not equal
            case operator:
                if a is None or b is None:
                    return None
                if operator in COMPARISONS:
                    return COMPARISONS[operator](ordered(a), ordered(b))
                if operator == "+" and isinstance(a, list):
                    return joined(a, b)
                return ARITHMETIC[operator](a, b)

    def unary(self, node: T.Unary, env: Env) -> Any:
        value = self.eval(node.value, env)
        if node.operator == "exists":
            return len(value) > 0
        if value is None:
            return None
        return (not value) if node.operator == "not" else -value if node.operator == "-" else value

    def setoperation(self, node: T.SetOperation, env: Env) -> Any:
        left, right = self.eval(node.left, env), self.eval(node.right, env)
        if node.operation == "union":
            return joined(left, right)
        remaining, kept = [ordered(value) for value in right], Bag()
        for value in left:
            there = ordered(value) in remaining
            if there:
                remaining.remove(ordered(value))
            if there == (node.operation == "intersect"):
                kept.append(value)
        return kept

    def rangeof(self, node: T.RangeOf, env: Env) -> Any:
        return list(range(self.eval(node.first, env), self.eval(node.last, env) + 1))

    def member(self, node: T.Member, env: Env) -> Any:
        return member(self.eval(node.value, env), node.name)

    def tuplecomponent(self, node: T.TupleComponent, env: Env) -> Any:
        return part(self.eval(node.value, env), node.position)

    def index(self, node: T.Index, env: Env) -> Any:
        value, at = self.eval(node.value, env), self.eval(node.index, env)
        if not isinstance(value, Bag):
            if not 0 <= at < len(value):
                raise EvaluationError("index")
            return value[at]
        found = [second for first, second in map(pair, value) if same(first, at)]
        if len(found) > 1:
            raise EvaluationError("several")
        return found[0] if found else None

    def template(self, node: T.Template, env: Env) -> Any:
        made = node.texts[0]
        for hole, after in zip(node.holes, node.texts[1:], strict=True):
            made += inserted(self.eval(hole, env)) + after
        return Xml(made)

    def markup(self, node: T.Markup, env: Env) -> Any:
        return ElementTree.fromstring(self.eval(node.value, env)).attrib[node.what[1:]]

    def slice(self, node: T.Slice, env: Env) -> Any:
        value, first, last = (self.eval(each, env) for each in (node.value, node.first, node.last))
        if first < 0 or last < first:
            raise EvaluationError("range")
        return [element for position, element in enumerate(value) if first <= position <= last]

    def repeat(self, node: T.Repeat, env: Env) -> Any:
        """n steps, or until the set of rows does not grow."""
        found = self.eval(node.start, env)
        several = len(node.names) > 1
        limit = 1000 if node.limit is None else self.eval(node.limit, env)
        for _ in range(limit):
            names = dict(zip(node.names, found, strict=True)) if several else {node.names[0]: found}
            made = self.eval(node.body, self.extended(env, names))
            flagged = not several and all(isinstance(row, tuple) and len(row) == 2 and row[1] is True for row in made)
            made = Bag(row[0] for row in made) if flagged else made
            if node.limit is None and len(made) == len(found):
                return made
            found = made
        return found

    def typed(self, node: T.Typed, env: Env) -> Any:
        value = self.eval(node.value, env)
        return converted(value, node.type)

    def lambda_form(self, node: T.Lambda, env: Env) -> Any:
        return Closure(node.parameters, node.body, env)

    def quantified(self, node: T.Quantified, env: Env) -> Any:
        found = [self.eval(node.condition, each) for each, _ in self.envs(node.bindings, env)]
        return aggregate("all" if node.every else "some", found)

    def case(self, node: T.Case, env: Env) -> Any:
        value = self.eval(node.value, env)
        for branch in node.branches:
            names = self.bind(branch.pattern, value, {}, env)
            if names is not None:
                return self.eval(branch.body, self.extended(env, names))
        raise EvaluationError("no branch")

    def functioncall(self, node: T.FunctionCall, env: Env) -> Any:
        known = env.get(node.name, self.globals.get(node.name))
        if isinstance(known, Closure):
            return self.apply(known, [self.eval(a, env) for a in node.arguments])
        if macro := self.macros.get(node.name):
            later = {p: (lambda a=a: self.eval(a, env)) for p, a in zip(macro.parameters, node.arguments, strict=True)}
            return self.eval(macro.body, later)
        if node.name in ("source", "stream"):
            return self.source(node, "")
        values = [self.eval(a, env) for a in node.arguments]
        if aggregation := self.aggregations.get(node.name):
            return self.fold(aggregation, values[0])
        if node.name in self.constructors:
            return Tagged(node.name, values[0] if len(values) == 1 else tuple(values))
        if node.name in AGGREGATES and len(values) == 1:
            return aggregate(node.name, values[0])
        if node.name in ("min", "max"):
            return aggregate(node.name, values)
        if node.name == "member":
            return any(same(values[0], value) is True for value in values[1])
        if node.name == "elem":
            if len(values[0]) != 1:
                raise EvaluationError("elem")
            return values[0][0]
        return None if None in values else SCALARS[node.name](*values)

    def apply(self, closure: Closure, values: Sequence[Any]) -> Any:
        pairs = zip(closure.parameters, values, strict=True)
        return self.eval(closure.body, {**closure.env, **{p.name: converted(value, p.type) for p, value in pairs}})

    def fold(self, aggregation: T.AggregationDefinition, values: Iterable[Any]) -> Any:
        plus, total = self.eval(aggregation.plus, {}), self.eval(aggregation.zero, {})
        unit = None if aggregation.unit is None else self.eval(aggregation.unit, {})
        for value in sorted((value for value in values if value is not None), key=ordered):
            total = self.apply(plus, [total, value if unit is None else self.apply(unit, [value])])
        return total
