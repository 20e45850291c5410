"""Give the columns of a plan unique names that are the same in every process.

A name depends on the order of the traversal alone and never on Spark's expression identifiers. Names become columns of
state tables.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import SparkSession

from deltafold.algebra.plan import Column
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

# Spark numbers these across queries (D-246)
ATTRIBUTE_NUMBER = re.compile(r"#\d+L?|(?<=\bUnionLoop )\d+|(?<=\bUnionLoopRef )\d+|(?<=\bCTERelation(?:Def|Ref) )\d+")


def type_text(data_type: J) -> str:
    """Return Spark's DDL text of a type, in lower case unless it has field names, whose case matters.

    Every part of it is nullable: state tables do not record NOT NULL, and Spark does not cast back to it.
    """
    text = str(data_type.asNullable().sql())
    return text if "STRUCT" in text else text.lower()


def renumber(text: str) -> str:
    """Return Spark's text of a plan or an expression with expressions and recursions numbered by first occurrence."""
    seen: dict[str, str] = {}
    return ATTRIBUTE_NUMBER.sub(lambda m: seen.setdefault(m[0].rstrip("L"), f"#{len(seen)}"), text)


class Names:
    """Unique names by expression identifier, and the renamed attribute of each name (`attributes`).

    reserved: names to use, in the order of creation, before new ones are created; `created`: all names so far, in
    order; `types`: of columns, by identifier, in place of the types of their attributes.
    """

    def __init__(self, spark: SparkSession, reserved: Sequence[str] = ()) -> None:
        self._spark = spark
        self._reserved = reserved
        self.created: list[str] = []
        self.types: dict[int, str] = {}
        self._taken: set[str] = set(reserved)
        self._columns: dict[int, Column] = {}
        self.attributes: dict[str, J] = {}

    def fresh(self, wish: str) -> str:
        """Return an unused name of letters, digits and underscores: the wish itself, or with a number at its end."""
        number = len(self.created)
        name = self._reserved[number] if number < len(self._reserved) else self._choose_name(wish)
        self.created.append(name)
        return name

    def _choose_name(self, wish: str) -> str:
        wish = re.sub(r"^(_\w+?)_\d+$", r"\1", wish)  # Catalyst numbers its own names by process
        stem = re.sub(r"\W+", "_", wish).strip("_").lower() or "c"
        stem = stem if stem[0].isalpha() else f"c{stem}"
        name = stem
        number = 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    def column(self, attribute: J, wish: str | None = None) -> Column:
        """Return the column of a Catalyst attribute, which is named when it is first asked for."""
        identifier = attribute.exprId().id()
        if identifier not in self._columns:
            self._columns[identifier] = self._add(attribute, attribute.exprId(), wish or str(attribute.name()))
        return self._columns[identifier]

    def expression(self, like: J, wish: str) -> Column:
        """Return a new column with the type of an expression."""
        identifier = catalyst.new_id(self._spark)
        column = self._add(like, identifier, wish)
        self._columns[identifier.id()] = column
        return column

    def attribute(self, column: Column) -> J:
        """Return the renamed Catalyst attribute of a column."""
        return self.attributes[column.name]

    def _add(self, like: J, identifier: J, wish: str) -> Column:
        name = self.fresh(wish)
        # Above an outer join or a union the same attribute may be NULL.
        self.attributes[name] = catalyst.attribute(self._spark, name, like.dataType(), identifier, nullable=True)
        return Column(name, self.types.get(identifier.id()) or type_text(like.dataType()))
