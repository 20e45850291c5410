"""Split what arrived in a stream into the rows of its source and the records that fit none.

| Spark's `from_json` would | here it is malformed |
| --- | --- |
| read the first of two JSON values in a line | the line |
| put � for bytes that are not UTF-8 | the line |
| put NULL for a value of another type | the line |
| put NULL for a column that is in the names of folders (`day=1/`) | the line |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from incremental.algebra.sources import Stream
from incremental.algebra.sqltext import quoted
from incremental.landing.formats.formats import DEFAULTS
from incremental.landing.formats.malformed_reason import CORRUPT, PERMISSIVE, MalformedReason
from incremental.landing.reader import FILE
from incremental.landing.streams.arrivals import RECORD, parsing_options

PARSED, REASON = "__parsed", "__reason"
SEVERAL_VALUES = "text follows its JSON value"
NOT_UTF8 = "it is not UTF-8"
IN_FOLDER = "its file is in a folder that names a column, as Files(…, partition_by=…) reads it"
ROWS, MALFORMED = "rows", "malformed"


@dataclass(frozen=True)
class Split:
    """The records of one landing; arrived: as Intake stored them."""

    stream: Stream
    schema: StructType
    arrived: DataFrame

    @property
    def can_fail(self) -> bool:
        """Whether records can be malformed."""
        return self.stream.format in ("csv", "json", "text")

    def rows(self) -> DataFrame:
        """Return the rows, with the declared columns."""
        if not self.can_fail:
            return self.arrived.select(*self._stored_columns())
        return self._read().where(F.col(CORRUPT).isNull()).select(*map(quoted, self.schema.names))

    def malformed(self) -> DataFrame:
        """Return the malformed records: origin, the record as it arrived, and the reason."""
        broken = self._read().where(F.col(CORRUPT).isNotNull())
        return broken.select(F.col(FILE).alias("file"), F.col(CORRUPT).alias("row"), self._reason().alias("reason"))

    def counts(self) -> tuple[int, int]:
        """Return the number of rows and of malformed records."""
        fits = F.col(CORRUPT).isNull()
        found = self._read().agg(F.count_if(fits).alias(ROWS), F.count_if(~fits).alias(MALFORMED)).first()
        assert found is not None
        return int(found[ROWS]), int(found[MALFORMED])

    def _read(self) -> DataFrame:
        """Return the declared columns, FILE, and in CORRUPT the text of a malformed record."""
        match self.stream.format:
            case "csv":
                return self.arrived.select(*self._stored_columns(), CORRUPT, FILE)
            case "text":
                (name,) = self.schema.names
                broken = F.when(~F.is_valid_utf8(RECORD), F.make_valid_utf8(RECORD))
                return self.arrived.select(F.col(RECORD).alias(name), broken.alias(CORRUPT), FILE)
            case _:
                return self._read_json()

    def _read_json(self) -> DataFrame:
        fields = [StructField(field.name, field.dataType) for field in self.schema]
        marked = StructType([*fields, StructField(CORRUPT, StringType())])
        options = {**parsing_options(self.stream.options), **PERMISSIVE}
        lines = self.arrived.where(F.col(RECORD).rlike(r"\S"))
        read = lines.withColumn(PARSED, F.from_json(RECORD, marked, options))
        names = [F.col(PARSED)[name].alias(name) for name in self.schema.names]
        fault = F.col(PARSED)[CORRUPT].isNotNull() | ~self._is_one_value | self._is_in_folder
        broken = F.when(fault, F.make_valid_utf8(RECORD))
        return read.select(*names, broken.alias(CORRUPT), FILE, RECORD)

    @property
    def _is_one_value(self) -> Column:
        """Whether a record is one JSON value in UTF-8; within brackets Spark's parser reads all of it."""
        within = F.concat(F.lit("["), F.col(RECORD), F.lit("]"))
        listed = F.from_json(within, "ARRAY<STRING>", parsing_options(self.stream.options))
        return F.is_valid_utf8(RECORD) & (F.coalesce(F.size(listed), F.lit(0)) == 1)

    @property
    def _is_in_folder(self) -> Column:
        """Whether a folder in the path of a record's file has the name of a column."""
        return F.col(FILE).rlike(f"/({'|'.join(map(re.escape, self.schema.names))})=[^/]*/")

    def _reason(self) -> Column:
        if self.stream.format == "text":
            return F.lit(NOT_UTF8)
        options = {**DEFAULTS.get(self.stream.format, {}), **parsing_options(self.stream.options)}
        told = MalformedReason("csv" if self.stream.format == "csv" else "json", list(self.schema), options).column()
        if self.stream.format == "csv":
            return told
        record = F.from_json(RECORD, StructType([StructField(CORRUPT, StringType())]), PERMISSIVE)
        fault = F.when(~F.is_valid_utf8(RECORD), NOT_UTF8).when(self._is_in_folder, IN_FOLDER)
        return fault.when(record[CORRUPT].isNull() & ~self._is_one_value, SEVERAL_VALUES).otherwise(told)

    def _stored_columns(self) -> list[Column]:
        """Return the stored columns by their declared names."""
        return [F.col(f"c{i}").alias(field.name) for i, field in enumerate(self.schema)]
