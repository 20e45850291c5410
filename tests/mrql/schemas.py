"""The schemas of the examples' tables, without Spark."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, DoubleType, IntegerType, StringType, StructField, StructType

INT, DOUBLE, STRING = IntegerType(), DoubleType(), StringType()


def table(**columns: DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in columns.items()])


SCHEMAS = {
    "S": table(x=INT, y=DOUBLE),
    "P": table(X=INT, Y=INT),
    "Q": table(Y=INT, Z=INT),
    "E": table(name=STRING, dno=INT, salary=DOUBLE),
    "D": table(dno=INT, city=STRING),
    "N": table(id=INT, tags=ArrayType(STRING), parts=ArrayType(table(n=INT, v=DOUBLE))),
    "M": table(i=INT, j=INT, v=DOUBLE),
    "W": table(i=INT, j=INT, v=DOUBLE),
    "J": table(id=INT, doc=STRING),
    "T": table(line=STRING),
}
