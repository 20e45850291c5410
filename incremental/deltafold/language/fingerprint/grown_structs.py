"""Find whether a query reads nothing of a struct column but fields that it had before others were added (D-170).

Then the query is the same, whatever fields there are besides. `SELECT s`, `to_json(s)` or `s = other` read all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, StructType

from deltafold.language.inner_plans import inner_plans
from deltafold.language.normalise import TRANSPARENT
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError

PASSED_ON = {*TRANSPARENT, "LogicalRDD"}  # translated to what is below them, or to nothing but columns
PASSING = {*PASSED_ON, "Project", "Filter", "Join", "Aggregate"}  # read what their expressions name, and no more
Grown = Mapping[str, Mapping[str, DataType]]
"""By source and column the types that columns had before they got further fields."""


def find_grown(
    recorded: Mapping[str, Mapping[str, str]], schema: Callable[[str], StructType | None]
) -> dict[str, dict[str, DataType]] | None:
    """Return the columns that got fields since their types were recorded; None if any changed in another way."""
    grown: dict[str, dict[str, DataType]] = {}
    for source, columns in recorded.items():
        now = schema(source)
        for name, text in columns.items():
            if now is None or name not in now.names:
                return None
            if (there := now[name].dataType).simpleString() != text:
                try:
                    then = catalyst.schema_of(f"c {text}")["c"].dataType
                except JavaError:  # a name of a field that has to be quoted
                    return None
                if not has_grown(then, there):
                    return None
                grown.setdefault(source, {})[name] = then
    return grown


def has_grown(then: DataType, now: DataType) -> bool:
    """Return whether a type is another one with more fields, in any place."""
    match then, now:
        case ArrayType(elementType=old), ArrayType(elementType=new):
            return has_grown(old, new)
        case StructType(), StructType():
            types = {field.name: field.dataType for field in now}
            return all(field.name in types and has_grown(field.dataType, types[field.name]) for field in then)
        case _:
            return then.simpleString() == now.simpleString()


class FieldReads:
    """The reads of grown columns in one plan; types: what they were, by the identifiers of their attributes."""

    def __init__(self, plan: J, relations: Mapping[int, str], grown: Grown) -> None:
        self._plan = plan
        self.types: dict[int, DataType] = {}
        for leaf in catalyst.relations_read(plan):
            number = leaf.rdd().id() if catalyst.kind(leaf) == "LogicalRDD" else -1
            columns = grown.get(relations.get(number, ""), {})
            for attribute in catalyst.sequence(leaf.output()):
                if (then := columns.get(str(attribute.name()))) is not None:
                    self.types[attribute.exprId().id()] = then

    def are_of_fields(self, spark: SparkSession) -> bool:
        """Return whether of these columns only fields are read that they had."""
        return not self._passes(self._plan) and all(self._reads_fields(spark, node) for node in _nodes(self._plan))

    def _passes(self, node: J) -> bool:
        """Return whether a grown column is among the columns of a node."""
        return any(a.exprId().id() in self.types for a in catalyst.sequence(node.output()))

    def _reads_fields(self, spark: SparkSession, node: J) -> bool:
        kind = catalyst.kind(node)
        if kind in PASSED_ON:
            return True
        if inner_plans(spark, node):
            return False
        if kind not in PASSING and any(map(self._passes, catalyst.sequence(node.children()))):
            return False
        expressions = catalyst.sequence(node.expressions())
        if kind == "Project":
            expressions = [
                expression for expression in expressions if catalyst.kind(expression) != "AttributeReference"
            ]
        return all(self._remaining(expression) is None for expression in expressions)

    def _remaining(self, expression: J) -> DataType | bool | None:
        """Return what the type of an expression was, None if it is the same; True if it reads more than it had."""
        kind = catalyst.kind(expression)
        children = catalyst.sequence(expression.children())
        if kind == "AttributeReference":
            return self.types.get(expression.exprId().id())
        below = [self._remaining(child) for child in children]
        if kind in ("GetStructField", "GetArrayStructFields") and isinstance(below[0], DataType):
            name = str(expression.extractFieldName() if kind == "GetStructField" else expression.field().name())
            return _field(below[0], name, str(expression.dataType().catalogString()))
        if kind in ("IsNull", "IsNotNull"):  # of a struct, whatever fields it has
            return below[0] if below[0] is True else None
        return None if all(type_ is None for type_ in below) else True


def _field(then: DataType, name: str, now: str) -> DataType | bool | None:
    """Return what the type of a field was, None if it is the same, True if there was none."""
    struct = then.elementType if isinstance(then, ArrayType) else then
    if not isinstance(struct, StructType) or name not in struct.names:
        return True
    type_ = ArrayType(struct[name].dataType) if isinstance(then, ArrayType) else struct[name].dataType
    return None if type_.simpleString() == now else type_


def _nodes(plan: J) -> Iterator[J]:
    yield plan
    for child in catalyst.sequence(plan.children()):
        yield from _nodes(child)
