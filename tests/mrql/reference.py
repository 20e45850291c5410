"""A plain evaluator of MRQL over Python lists, which shares nothing with the translation but the tree.

A bag is a Bag, a list a list, a record a dict, a row of a source a Row, a value of a data type a Tagged.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from incremental.language.mrql.syntax import items as I
from incremental.language.mrql.syntax import tree as T

Env = dict[str, Any]
REPEATED = "#repeated"


class Bag(list[Any]):
    """A collection without order."""


class Xml(str):
    """An element, as its text."""


class Row(dict[str, Any]):
    """A row of a source, which tuple patterns take too."""


@dataclass(frozen=True)
class Tagged:
    tag: str
    value: Any


@dataclass(frozen=True)
class Closure:
    parameters: tuple[T.Parameter, ...]
    body: T.Node
    env: Env


class EvaluationError(Exception):
    """What is an error at run time."""


def ordered(value: Any) -> Any:
    """A key that sorts values as Spark does: NULL first, NaN last, tuples part by part."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, dict):
        return (1, [ordered(part) for part in value.values()])
    if isinstance(value, Bag):
        return (1, sorted(map(ordered, value)))
    if isinstance(value, list | tuple):
        return (1, [ordered(part) for part in value])
    if isinstance(value, Tagged):
        return (1, [(1, value.tag), ordered(value.value)])
    return (1, value + 0.0 if isinstance(value, float) else value)


def same(a: Any, b: Any) -> bool | None:
    """Equality: of products part by part, with NULL unknown."""
    if a is None or b is None:
        return None
    if isinstance(a, dict | tuple) and isinstance(b, dict | tuple):
        left = list(a.values()) if isinstance(a, dict) else list(a)
        right = list(b.values()) if isinstance(b, dict) else list(b)
        parts = [same(x, y) for x, y in zip(left, right, strict=True)]
        return False if False in parts else None if None in parts else True
    return bool(ordered(a) == ordered(b))


def truncated(a: Any, b: Any) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise EvaluationError("division by zero")
        return truncated(a, b)
    a, b = float(a), float(b)
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def modulo(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise EvaluationError("division by zero")
        return a - b * truncated(a, b)
    return math.nan if b == 0 else math.fmod(a, b)


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divide, "mod": modulo,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
SCALARS: dict[str, Callable[..., Any]] = {
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "pow": lambda x, y: float(x) ** y,
    "abs": abs,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "round": lambda x: int(math.copysign(math.floor(abs(x) + 0.5), x)),
    "exp": math.exp,
    "log": lambda x: math.log(x) if x > 0 else -math.inf if x == 0 else math.nan,
    "contains": lambda s, p: p in s,
    "startsWith": lambda s, p: s.startswith(p),
    "length": len,
    "replace": lambda s, a, b: s.replace(a, b),
    "replaceAll": lambda s, a, b: re.sub(a, b, s),
    "toLowerCase": str.lower,
    "toUpperCase": str.upper,
    "trim": lambda s: s.strip(" "),
    "substring": lambda s, b, e: s[b:e],
    "split": lambda s, p: re.split(p, s),
    "string": lambda x: str(x).lower() if isinstance(x, bool) else str(x),
    "parse_json": json.loads,
    "text": lambda x: "".join(ElementTree.fromstring(x).itertext()),
    "tag": lambda x: ElementTree.fromstring(x).tag,
    "toInt": int,
    "toLong": int,
    "toDouble": float,
}


def aggregate(name: str, values: Iterable[Any]) -> Any:
    """An aggregate of elements; NULLs are counted, and otherwise left out."""
    every = list(values)
    present = [value for value in every if value is not None]
    match name:
        case "count":
            return len(every)
        case "sum":
            return sum(present)
        case "avg":
            return math.fsum(present) / len(present) if present else math.nan
        case "min":
            return min(present, key=ordered, default=None)
        case "max":
            return max(present, key=ordered, default=None)
        case "some":
            return any(value is True for value in every)
        case _:
            return all(value is True for value in every)


AGGREGATES = ("count", "sum", "avg", "min", "max", "some", "all")


class Reference:
    """A program over tables: name → rows."""

    def __init__(self, tables: Mapping[str, Sequence[Row]], args: Sequence[str] = ()) -> None:
        self.tables = {name.lower(): Bag(rows) for name, rows in tables.items()}
        self.args, self.globals = list(args), Env()
        self.macros: dict[str, I.MacroDefinition] = {}
        self.aggregations: dict[str, I.AggregationDefinition] = {}
        self.constructors = set[str]()

    def run(self, items: Sequence[T.Node]) -> Any:
        """The value of the last query."""
        answer = None
        for item in items:
            match item:
                case I.Define(name=name, value=value):
                    self.globals[name] = (
                        self.source(value, name) if isinstance(value, T.FunctionCall) else self.eval(value, {})
                    )
                case I.FunctionDefinition(name=name, parameters=parameters, body=body):
                    self.globals[name] = Closure(parameters, body, {})
                case I.MacroDefinition(name=name):
                    self.macros[name] = item
                case I.AggregationDefinition(name=name):
                    self.aggregations[name] = item
                case I.DataDefinition(alternatives=alternatives):
                    self.constructors |= {each.name for each in alternatives}
                case I.Evaluate(value=value):
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
        value = self.eval(node.value, env)
        return list(value.values())[node.position] if isinstance(value, Row) else value[node.position]

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
        value = self.eval(node.value, env)
        return value[max(self.eval(node.first, env), 0) : max(self.eval(node.last, env), 0)]

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

    def fold(self, aggregation: I.AggregationDefinition, values: Iterable[Any]) -> Any:
        plus, total = self.eval(aggregation.plus, {}), self.eval(aggregation.zero, {})
        unit = None if aggregation.unit is None else self.eval(aggregation.unit, {})
        for value in sorted(values, key=ordered):
            total = self.apply(plus, [total, value if unit is None else self.apply(unit, [value])])
        return total

    # ---- select

    def select(self, node: T.Select, env: Env) -> Any:
        envs = self.envs(node.bindings, env)
        if node.where is not None:
            envs = [each for each in envs if self.eval(node.where, each[0]) is True]
        heads = [each for each, _ in envs] if node.group is None else self.groups(node.group, envs, env)
        rows = [(self.eval(node.head, each), self.keys(node, each)) for each in heads]
        if node.distinct:
            rows = [row for i, row in enumerate(rows) if ordered(row) not in [ordered(r) for r in rows[:i]]]
        if node.order is None:
            return Bag(head for head, _ in rows)
        rows.sort(key=cmp_to_key(lambda a, b: compared(node, a, b)))
        limit = None if node.order.limit is None else self.eval(node.order.limit, env)
        return [head for head, _ in rows][:limit]

    def keys(self, node: T.Select, env: Env) -> list[Any]:
        return [self.eval(uninverted(key)[0], env) for key in node.order.keys] if node.order else []

    def envs(self, bindings: Sequence[T.Binding], env: Env) -> list[tuple[Env, Env]]:
        """Each combination: the environment, and the variables of the from clause alone."""
        found: list[tuple[Env, Env]] = [(env, {})]
        for binding in bindings:
            made = list[tuple[Env, Env]]()
            for each, bound in found:
                domain = self.eval(binding.domain, each)
                for value in domain if binding.each else [domain]:
                    names = self.bind(binding.pattern, value, bound, each)
                    if names is not None:
                        made.append((self.extended(each, names), names))
            found = made
        return found

    def groups(self, group: T.GroupBy, envs: list[tuple[Env, Env]], env: Env) -> list[Env]:
        members: dict[str, list[tuple[Env, Env]]] = {}
        keys: dict[str, Any] = {}
        for each in envs:
            key = self.eval(group.key, each[0])
            keys[repr(ordered(key))] = key
            members.setdefault(repr(ordered(key)), []).append(each)
        found = list[Env]()
        for text, inside in members.items():
            bags: Env = {name: Bag(bound[name] for _, bound in inside) for name in inside[0][1]}
            bags["partition"] = Bag(bound for _, bound in inside)
            made = self.extended(env, bags)
            if group.pattern is not None:
                names = self.bind(group.pattern, keys[text], {}, made)
                assert names is not None
                made = self.extended(made, names)
            else:
                pairs = [(group.key, keys[text])]
                if isinstance(group.key, T.TupleOf):
                    pairs += zip(group.key.items, keys[text], strict=True)
                made = {**made, REPEATED: [*made.get(REPEATED, ()), *pairs]}
            if group.having is None or self.eval(group.having, made) is True:
                found.append(made)
        return found

    def extended(self, env: Env, names: Env) -> Env:
        """An environment with more names, which hide what is repeated about them."""
        repeated = [each for each in env.get(REPEATED, ()) if not mentioned(each[0]) & set(names)]
        return {**env, **names, REPEATED: repeated}

    def bind(self, pattern: T.Node, value: Any, bound: Env, env: Env) -> Env | None:
        """The variables of a pattern, None where it does not take the value."""
        match pattern:
            case T.Anything():
                return bound
            case T.Name(name=name):
                if name in bound:
                    return bound if same(bound[name], value) is True else None
                return {**bound, name: value}
            case T.Literal(value=constant):
                return bound if same(constant, value) is True else None
            case T.TypedPattern(pattern=inner, type=type_):
                return self.bind(inner, converted(value, type_), bound, env)
            case T.RecordPattern(names=names, items=items):
                return self.bind_all(items, [value[name] for name in names], bound, env)
            case T.ListPattern(items=items):
                return self.bind_all(items, value, bound, env) if len(value) == len(items) else None
            case T.ConstructorPattern(name=name, items=items):
                if value is None or value.tag != name:
                    return None
                return self.bind_all(items, [value.value] if len(items) == 1 else value.value, bound, env)
            case T.TuplePattern(items=items):
                return self.bind_all(items, list(value.values()) if isinstance(value, Row) else value, bound, env)
            case _:
                raise TypeError(pattern)

    def bind_all(self, items: Sequence[T.Node], values: Sequence[Any], bound: Env, env: Env) -> Env | None:
        found: Env | None = bound
        for item, value in zip(items, values, strict=True):
            found = None if found is None else self.bind(item, value, found, env)
        return found


def split_line(row: Row, separator: T.Node, type_: T.Node) -> Any:
    """The fields of a line by a type, without those of `any`."""
    assert isinstance(separator, T.Literal) and isinstance(type_, T.TypeValue)
    (line,) = row.values()
    fields = [field.strip(" ") for field in line.split(separator.value)]
    if isinstance(type_.type, T.RecordType):
        return {p.name: converted(f, p.type) for p, f in zip(type_.type.fields, fields, strict=False)}
    assert isinstance(type_.type, T.TupleType)
    pairs = zip(type_.type.items, fields, strict=False)
    return tuple(converted(f, i) for i, f in pairs if not (isinstance(i, T.NamedType) and i.name == "any"))


def uninverted(key: T.SortKey) -> tuple[T.Node, bool]:
    node, descending = key.value, key.descending
    while isinstance(node, T.FunctionCall) and node.name == "inv":
        node, descending = node.arguments[0], not descending
    return node, descending


def compared(node: T.Select, a: tuple[Any, list[Any]], b: tuple[Any, list[Any]]) -> int:
    assert node.order is not None
    for key, x, y in zip(node.order.keys, a[1], b[1], strict=True):
        if ordered(x) != ordered(y):
            smaller = ordered(x) < ordered(y)
            return -1 if smaller != uninverted(key)[1] else 1
    return (ordered(a[0]) > ordered(b[0])) - (ordered(a[0]) < ordered(b[0]))


def inserted(value: Any) -> str:
    if isinstance(value, list):
        return "".join(map(inserted, sorted(value, key=ordered) if isinstance(value, Bag) else value))
    return value if isinstance(value, Xml) else "" if value is None else escape(str(value), {'"': "&quot;"})


def pair(value: Any) -> tuple[Any, Any]:
    first, second = value.values() if isinstance(value, Row) else value
    return first, second


def joined(left: Any, right: Any) -> Any:
    both = [*left, *right]
    return Bag(both) if isinstance(left, Bag) or isinstance(right, Bag) else both


def member(value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return value[name] if isinstance(value, Row) else value.get(name)
    parts = [member(each, name) for each in value]
    kind = Bag if isinstance(value, Bag) else list
    if parts and isinstance(parts[0], list):
        return kind(inner for part in parts for inner in part)
    return kind(parts)


def converted(value: Any, type_: T.Node) -> Any:
    if isinstance(type_, T.NamedType) and value is not None:
        if type_.name == "XML":
            return Xml(value)
        made = {"int": int, "long": int, "double": float, "string": str}.get(type_.name)
        return made(value) if made else value
    if isinstance(type_, T.CollectionType) and value is not None:
        return (Bag if type_.bag else list)(converted(each, type_.item) for each in value)
    return value


def mentioned(node: T.Node) -> set[str]:
    found = {node.name} if isinstance(node, T.Name) else set[str]()
    for part in node.parts:
        found |= mentioned(part)
    return found
