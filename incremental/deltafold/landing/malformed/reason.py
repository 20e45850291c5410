"""Say why Spark marked a row of CSV or JSON as malformed: it reads the row again as text and compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from deltafold.algebra.sources import Format
from deltafold.algebra.sqltext import quoted
from deltafold.landing.malformed.parse_errors import NO_RECORD, OTHER_NUMBER, WRONG_TYPE

CORRUPT = "__corrupt"
PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
VALUE_LIMIT = "maxCharsPerColumn"
LONGEST_VALUE_SHOWN = 100  # characters of a value that a reason shows


@dataclass(frozen=True)
class MalformedReason:
    """The reasons for malformed rows of a format, in a frame with the columns of the rows and CORRUPT.

    fields: the columns that are in the rows; options: Spark's reader options.
    """

    format: Format
    fields: Sequence[StructField]
    options: Mapping[str, str]

    def column(self) -> Column:
        """Return why a row is malformed: read again as text, a value that is present has become NULL."""
        fields = [(field.name, field.dataType.simpleString()) for field in self.fields]
        texts = self._parse_again("STRING")
        _, whole = row_parser(self.format)
        faults = [
            F.when(
                texts[name].isNotNull() & F.col(quoted(name)).isNull(),
                F.concat(
                    F.left(shown, F.lit(LONGEST_VALUE_SHOWN)), F.lit(f" in {name} is not a valid {type_.upper()}")
                ),
            )
            for (name, type_), shown in zip(fields, self._as_written(texts), strict=True)
        ]
        return F.when(texts[CORRUPT].isNotNull(), whole).otherwise(F.coalesce(*faults, F.lit(WRONG_TYPE)))

    def _parse_again(self, kind: str) -> Column:
        """Read a malformed row again, every value as one type; the whole row as text if it is not a record.

        A row that was read has an end, and each of the parsers here would hold a value of the longest length.
        """
        types = {**{field.name: kind for field in self.fields}, CORRUPT: "STRING"}
        parse, _ = row_parser(self.format)
        ddl = ", ".join(f"{quoted(name)} {type_}" for name, type_ in types.items())
        options = {name: value for name, value in self.options.items() if name.lower() != VALUE_LIMIT.lower()}
        return parse(F.col(CORRUPT), ddl, {**options, **PERMISSIVE})

    def _as_written(self, texts: Column) -> list[Column]:
        """Return the values of a malformed row as in its file: in JSON, 12 is not "12"."""
        plain = [texts[field.name] for field in self.fields]
        if self.format != "json":
            return plain
        values = self._parse_again("VARIANT")
        return [
            F.when(F.schema_of_variant(values[name]) == "STRING", F.to_json(values[name])).otherwise(text)
            for name, text in zip((field.name for field in self.fields), plain, strict=True)
        ]


def row_parser(format: Format) -> tuple[Callable[[Column, str, dict[str, str]], Column], str]:
    """Return Spark's parser of one malformed row, and the reason against a row that is none at all.

    Only of the formats whose malformed rows Spark marks (`MARKED_FORMATS`).
    """
    match format:
        case "csv":
            return F.from_csv, OTHER_NUMBER
        case "json":
            return F.from_json, NO_RECORD
        case "xml" | "text" | "parquet" | "orc" | "avro" | "binary":
            raise AssertionError(f"Spark marks no rows of {format} files")
        case _:
            assert_never(format)
