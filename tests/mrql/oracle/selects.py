"""Select in plain Python: generators, patterns, groups and order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

from deltafold.language.mrql.syntax import tree as T
from tests.mrql.oracle.conversions import converted
from tests.mrql.oracle.values import (
    Bag,
    Env,
    Row,
    ordered,
    same,
)

REPEATED = "#repeated"


class Selects:
    """The forms of select; the evaluator gives the value of any other expression."""

    constructors: set[str]

    def eval(self, node: T.Node, env: Env) -> Any:
        """Return the value of an expression."""
        raise NotImplementedError

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
                for value in domain if binding.is_generator else [domain]:
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


def mentioned(node: T.Node) -> set[str]:
    found = {node.name} if isinstance(node, T.Name) else set[str]()
    for part in node.parts:
        found |= mentioned(part)
    return found
