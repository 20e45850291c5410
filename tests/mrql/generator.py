"""Random programs from the relational core of MRQL, two levels deep, and tables for them.

Numbers are small and doubles are quarters, so sums are exact and nothing overflows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

TABLES = {
    "R": ("a int, b int", ("int", "int")),
    "S": ("a int, x double", ("int", "double")),
    "U": ("k string, n int", ("string", "int")),
}
Variables = dict[str, str]
"""The type of each name in scope, or of each part of a name, such as `v1#0`."""


def table_rows(chance: random.Random) -> dict[str, list[tuple[Any, ...]]]:
    """A few rows for each table, some equal, some NULL."""
    values: dict[str, Callable[[], Any]] = {
        "int": lambda: chance.choice([None, -1, 0, 1, 1, 2, 3]),
        "double": lambda: chance.choice([None, -0.5, 0.0, 0.25, 1.0, 1.5]),
        "string": lambda: chance.choice(["p", "q", "r", None]),
    }
    return {
        name: [tuple(values[type_]() for type_ in types) for _ in range(chance.randint(3, 7))]
        for name, (_, types) in TABLES.items()
    }


class Generator:
    """One random program; the same seed gives the same one."""

    def __init__(self, seed: int) -> None:
        self.chance, self._last = random.Random(seed), 0

    def program(self) -> str:
        """A query of two levels."""
        chance = self.chance
        match chance.randint(0, 9):
            case 0 | 1:
                types = self.types()
                operation = chance.choice(["union", "intersect", "except"])
                return f"({self.select(1, {}, types)}) {operation} ({self.select(1, {}, types)});"
            case 2:
                return f"{self.number({}, 2)};"
            case 3:
                types = self.types()
                names = [self.fresh() for _ in types]
                inner, outer = self.select(1, {}, types), dict(zip(names, types, strict=True))
                head, where = self.head(outer, 1, self.types()), self.condition(outer, 1)
                return f"V = {inner}; select {head} from {self.pattern(names)} in V where {where};"
            case _:
                return f"{self.select(2, {}, self.types())};"

    def fresh(self) -> str:
        self._last += 1
        return f"v{self._last}"

    def types(self) -> list[str]:
        return [
            self.chance.choice(["int", "int", "double", "string", "bool"]) for _ in range(self.chance.randint(1, 3))
        ]

    @staticmethod
    def pattern(names: Sequence[str]) -> str:
        return f"({', '.join(names)})" if len(names) > 1 else names[0]

    def select(self, depth: int, outer: Variables, types: Sequence[str]) -> str:
        """A select whose head has these types; outer: what it may refer to beside its own variables."""
        chance = self.chance
        own, bindings = Variables(), list[str]()
        for _ in range(chance.choice([1, 1, 2])):
            bindings.append(self.generator(depth, {**outer, **own}, own))
        if chance.random() < 0.2:
            name = self.fresh()
            bindings.append(f"{name} = {self.number({**outer, **own}, 0)}")
            own[name] = "int"
        text = f"from {', '.join(bindings)}"
        if chance.random() < 0.6:
            text += f" where {self.condition({**outer, **own}, depth - 1)}"
        if chance.random() < 0.4:
            return self.grouped(text, own, outer, types)
        head = self.head({**outer, **own}, depth - 1, types)
        if not outer and chance.random() < 0.2:
            return f"select distinct {head} {text}"
        if not outer and chance.random() < 0.15:
            key, way = self.scalar("int", own, 0), chance.choice(["", " desc"])
            return f"(select {head} {text} order by {key}{way} limit {chance.randint(1, 4)})"
        return f"select {head} {text}"

    def generator(self, depth: int, known: Variables, own: Variables) -> str:
        """One generator, whose variables go to `own`."""
        if depth > 1 and self.chance.random() < 0.3:
            types = self.types()
            inner = f"({self.select(depth - 1, known if self.chance.random() < 0.3 else {}, types)})"
        else:
            inner = self.chance.choice(list(TABLES))
            types = list(TABLES[inner][1])
        names = [self.fresh() for _ in types]
        if len(names) > 1 and self.chance.random() < 0.25:
            own.update({f"{names[0]}#{position}": type_ for position, type_ in enumerate(types)})
            return f"{names[0]} in {inner}"
        pattern = list(names)
        same = [n for n in own if own[n] == types[0] and "#" not in n]
        if same and self.chance.random() < 0.4:
            pattern[0] = names[0] = self.chance.choice(same)
        own.update(zip(names, types, strict=True))
        return f"{self.pattern(pattern)} in {inner}"

    def grouped(self, text: str, own: Variables, outer: Variables, types: Sequence[str]) -> str:
        """A group by of one or two keys; the head has keys and aggregates."""
        keys = {self.fresh(): (self.chance.choice(list(own))) for _ in range(self.chance.choice([1, 1, 2]))}
        key_types = {name: own[of] for name, of in keys.items()}
        pattern, key = self.pattern(list(keys)), self.pattern(list(keys.values()))
        bags = {name: type_ for name, type_ in own.items() if name not in keys}
        head = self.pattern([self.of_group(type_, key_types, bags) for type_ in types])
        having = f" having {self.of_group('bool', key_types, bags)}" if self.chance.random() < 0.3 else ""
        return f"select {head} {text} group by {pattern}: {key}{having}"

    def of_group(self, type_: str, keys: Variables, bags: Variables) -> str:
        """A value of a group."""
        chance = self.chance
        of_type = [name for name, found in keys.items() if found == type_]
        if of_type and chance.random() < 0.5:
            return chance.choice(of_type)
        numbers = [name for name, found in bags.items() if found in ("int", "double")]
        same = [name for name, found in bags.items() if found == type_]
        match type_:
            case "int" if numbers and chance.random() < 0.5:
                ints = [name for name in numbers if bags[name] == "int"]
                if ints:
                    bag, x = chance.choice(ints), self.fresh()
                    return f"sum(select {x} * 2 from {x} in {bag} where {self.condition({x: 'int', **keys}, 0)})"
                return f"count({chance.choice(numbers)})"
            case "int":
                return f"count({chance.choice(list(bags))})"
            case "double" if numbers:
                return f"{chance.choice(['avg', 'sum'])}({chance.choice(numbers)}) * 1.0"
            case "double":
                return f"count({chance.choice(list(bags))}) * 0.5"
            case "string" if same:
                return f"{chance.choice(['min', 'max'])}({chance.choice(same)})"
            case "string":
                return "'z'"
            case _:
                bag, x = chance.choice(list(bags)), self.fresh()
                word = chance.choice(["some", "all"])
                return f"({word} {x} in {bag}: {self.condition({x: bags[bag], **keys}, 0)})"

    def head(self, known: Variables, depth: int, types: Sequence[str]) -> str:
        return self.pattern([self.scalar(type_, known, depth) for type_ in types])

    def scalar(self, type_: str, known: Variables, depth: int) -> str:
        """A value of a type."""
        chance = self.chance
        same = [name for name, found in known.items() if found == type_]
        if same and chance.random() < 0.5:
            return chance.choice(same)
        match type_:
            case "int":
                return self.number(known, depth)
            case "double":
                return f"({self.number(known, depth)} * {chance.choice(['0.5', '0.25', '1.5'])})"
            case "string":
                other = chance.choice(same or ["'q'"])
                return f"(if {self.condition(known, 0)} then 'p' else {other})"
            case _:
                return f"({self.condition(known, depth)})"

    def number(self, known: Variables, depth: int) -> str:
        """An integer."""
        chance = self.chance
        ints = [name for name, found in known.items() if found == "int"]
        leaf = chance.choice(ints) if ints and chance.random() < 0.8 else str(chance.randint(0, 3))
        match chance.randint(0, 7):
            case 0 | 1:
                return f"({leaf} {chance.choice(['+', '-', '*'])} {chance.choice(ints or ['2'])})"
            case 2:
                return f"({leaf} {chance.choice(['/', 'mod'])} {chance.choice(['2', '3'])})"
            case 3 if depth > 0:
                return f"count({self.select(1, known, ['int'])})"
            case 4 if depth > 0:
                return f"sum({self.select(1, known, ['int'])})"
            case 5:
                return f"(if {self.condition(known, 0)} then {leaf} else {chance.randint(0, 3)})"
            case _:
                return leaf

    def condition(self, known: Variables, depth: int) -> str:
        """A condition."""
        chance = self.chance
        if depth > 0 and chance.random() < 0.4:
            own = Variables()
            match chance.randint(0, 3):
                case 0:
                    return f"exists({self.select(1, known, ['int'])})"
                case 1:
                    return f"not exists({self.select(1, known, ['int'])})"
                case 2:
                    return f"member({self.scalar('int', known, 0)}, {self.select(1, known, ['int'])})"
                case _:
                    binding = self.generator(1, {}, own)
                    return f"({chance.choice(['some', 'all'])} {binding}: {self.condition({**known, **own}, 0)})"
        usable = [name for name, found in known.items() if found != "bool"]
        if not usable:
            return "1 < 2"
        name = chance.choice(usable)
        others = [other for other in usable if known[other] == known[name]]
        constant = {"int": "1", "double": "0.5", "string": "'q'"}[known[name]]
        simple = f"{name} {chance.choice(['=', '<>', '<', '>='])} {chance.choice([constant, *others])}"
        match chance.randint(0, 5):
            case 0:
                return f"not ({simple})"
            case 1:
                return f"({simple} {chance.choice(['and', 'or'])} {self.condition(known, 0)})"
            case _:
                return simple
