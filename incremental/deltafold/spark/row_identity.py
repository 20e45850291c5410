"""Compare rows by identity: by the bits of floats, with one NaN, and the bytes of texts, at any depth (D-164).

SQL's equality is coarser: 0.0 equals -0.0, and texts may be equal under a collation, but `CAST(d AS STRING)` and
`hex(c)` tell them apart. A row that changes from one to the other has changed, so bags of rows are compared and summed
by identity. The group keys, DISTINCT and joins of a query keep SQL's equality.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltafold.algebra.sqltext import quoted, simple_types


def identity_keys(value: str, data_type: T.DataType, depth: int = 0) -> tuple[str, ...]:
    """Return SQL expressions that are equal for SQL, NULL to NULL, just if the values of an expression are identical.

    Where SQL's equality is identity, that is the expression itself alone. Maps are compared by their entries in order,
    on which a query may depend. Spark compares no variants, so a type must not contain any.
    """
    match data_type:
        case T.FloatType() | T.DoubleType():
            # abs: where a condition contains `d = 0.0`, Spark would put 0.0 in the place of d
            return value, f"(abs({value}) = 0 AND CAST({value} AS STRING) = '-0.0')"
        case T.StringType() if data_type.collation != "UTF8_BINARY":
            return (f"CAST({value} AS STRING COLLATE UTF8_BINARY)",)
        case T.ArrayType(elementType=element):
            item = f"item_{depth}"
            keys = identity_keys(item, element, depth + 1)
            key = keys[0] if len(keys) == 1 else f"struct({', '.join(keys)})"
            return (value if key == item else f"transform({value}, {item} -> {key})",)
        case T.MapType(keyType=key, valueType=item):
            entry = T.StructType([T.StructField("key", key), T.StructField("value", item)])
            return identity_keys(f"map_entries({value})", T.ArrayType(entry), depth)
        case T.StructType(fields=fields):
            named = {f"{value}.{quoted(field.name)}": field.dataType for field in fields}
            keys = tuple(key for name, kind in named.items() for key in identity_keys(name, kind, depth))
            return (value if keys == tuple(named) else f"if({value} IS NULL, NULL, struct({', '.join(keys)}))",)
        case _:
            return (value,)


def row_keys(schema: T.StructType, names: Sequence[str], side: str = "") -> list[str]:
    """Return the identity keys of some columns of a row; side: what qualifies them (`t.`)."""
    return [key for name in names for key in identity_keys(side + quoted(name), schema[name].dataType)]


def identical_sql(schema: T.StructType, names: Sequence[str], left: str = "t", right: str = "u") -> str:
    """Return the SQL condition that two rows are identical in some columns."""
    sides = (row_keys(schema, names, f"{side}.") for side in (left, right))
    return " AND ".join(f"{one} <=> {other}" for one, other in zip(*sides, strict=True)) or "true"


def identical_by_hash(schema: T.StructType, names: Sequence[str]) -> str:
    """Return the same condition for `t` and `u` as one equality of a number, by which Spark joins, and all others.

    Spark would hash two values for each column of `<=>`. `least` hides the others from it: they are compared where the
    hashes are equal. Maps have no hash; where 0.0 and -0.0 have the same one, it is just not as selective.
    """
    hashed = [name for name in names if "map" not in simple_types(schema[name].dataType.simpleString())]
    if not hashed:
        return identical_sql(schema, names)
    left, right = (f"xxhash64({', '.join(f'{side}.{quoted(name)}' for name in hashed)})" for side in "tu")
    sides = (row_keys(schema, names, f"{side}.") for side in "tu")
    equal = (f"{one} <=> {other}" for one, other in zip(*sides, strict=True))
    return f"{left} = {right} AND least(true, {', '.join(equal)})"


def group_identical(rows: DataFrame, names: Sequence[str], *aggregates: tuple[str, Column]) -> DataFrame:
    """Group rows by the identity of some columns; returns these columns and the named aggregates."""
    keys, restored, firsts, schema = list[Column](), dict[str, Column](), list[Column](), rows.schema
    for number, name in enumerate(names):
        column, data_type = F.col(quoted(name)), schema[name].dataType
        identity = identity_keys(quoted(name), data_type)
        if identity == (quoted(name),):
            keys.append(column)
            continue
        aliases = [f"__key_{number}_{i}" for i in range(len(identity))]
        keys += [F.expr(key).alias(alias) for key, alias in zip(identity, aliases, strict=True)]
        match data_type:
            case T.FloatType() | T.DoubleType():
                value = F.when(F.col(aliases[1]), F.lit(-0.0)).otherwise(F.col(aliases[0]))
            case T.StringType():  # Spark 4.2 without code generation mixes up the first ones of collated texts
                value = F.col(aliases[0])
            case _:
                value = F.col(f"__first_{number}")
                firsts.append(F.first(column).alias(f"__first_{number}"))
        restored[name] = value.cast(data_type).alias(name)
    grouped = rows.groupBy(*keys).agg(*(value.alias(name) for name, value in aggregates), *firsts)
    if not restored:
        return grouped
    values = (restored.get(name, F.col(quoted(name))) for name in names)
    return grouped.select(*values, *(name for name, _ in aggregates))
