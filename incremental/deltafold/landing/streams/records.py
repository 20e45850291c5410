"""Split the records of a stream into rows of its source and malformed records.

A line of JSON is malformed where Spark's `from_json` would

- read the first of two JSON values in it,
- put � for bytes that are not UTF-8,
- put NULL for a value of another type, or
- put NULL for a column that is in the names of folders (`day=1/`).

The same holds for the value of a Kafka message, which is malformed too if it has no value, or a key that does not fit
its column. With a `key`, a message without a value deletes the row of its key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import assert_never, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import KAFKA, PARSED_FORMATS, ParsedFormat, Stream
from deltafold.algebra.sqltext import quoted
from deltafold.landing.formats import FORMAT_DEFAULTS
from deltafold.landing.malformed import CORRUPT, NO_RECORD, PERMISSIVE, MalformedReason, shorten
from deltafold.landing.reader import FILE
from deltafold.landing.streams.arrivals import KEY, OFFSET, RECORD, own_column, own_columns, parsing_options

PARSED, DELETED, LATEST = "__parsed", "__deleted", "__latest"
SEVERAL_VALUES = "text follows its JSON value"
NOT_UTF8 = "it is not UTF-8"
IN_FOLDER = "its file is in a folder that names a column, as Files(…, partition_by=…) reads it"
NO_KEY, NO_VALUE = "it has no key", "it has no value"
GOOD_ROWS, MALFORMED = "rows", "malformed"

Fault = tuple[Column, str]
"""A condition of a malformed record, and the reason."""


@dataclass(frozen=True)
class Split:
    """The records of one landing; arrived: the rows that Intake stored."""

    stream: Stream
    schema: StructType
    arrived: DataFrame

    @property
    def can_fail(self) -> bool:
        """Whether records can be malformed."""
        return self.stream.format in PARSED_FORMATS

    def rows(self, *, all_fit: bool) -> DataFrame:
        """Return the rows, with the declared columns; with a key, the latest one of each, unless it was deleted.

        all_fit: no record is malformed, so records need not be checked again.
        """
        if not self.can_fail:
            return self.arrived.select(*self._stored_columns())
        if self.stream.key is None and all_fit:
            return self._read().select(*map(quoted, self.schema.names))
        fitting = self._read().where(F.col(CORRUPT).isNull()) if self.stream.key is None else self.latest()
        return fitting.where(~F.col(DELETED)).select(*map(quoted, self.schema.names))

    def malformed(self) -> DataFrame:
        """Return the malformed records: origin, offset in it, the record as it arrived, and the reason."""
        offset = F.col(OFFSET) if self._is_kafka else F.lit(None)
        malformed = self._read().where(F.col(CORRUPT).isNotNull())
        return malformed.select(
            F.col(FILE).alias("file"),
            offset.cast("bigint").alias("line"),
            F.col(CORRUPT).alias("row"),
            self._reason().alias("reason"),
        )

    def counts(self) -> tuple[int, int]:
        """Return the number of records that fit and of malformed ones."""
        fits = F.col(CORRUPT).isNull()
        counts = self._read().agg(F.count_if(fits).alias(GOOD_ROWS), F.count_if(~fits).alias(MALFORMED)).first()
        assert counts is not None
        return int(counts[GOOD_ROWS]), int(counts[MALFORMED])

    def latest(self) -> DataFrame:
        """Return the latest row of each key, and in DELETED whether it is deleted."""
        assert self.stream.key is not None
        read = self._read().where(F.col(CORRUPT).isNull())
        columns = F.struct(*map(quoted, self.schema.names), DELETED)
        order = F.struct(OFFSET, "_timestamp")  # a key has one partition, in which offsets grow
        latest = read.groupBy(quoted(self.stream.key)).agg(F.max_by(columns, order).alias(LATEST))
        return latest.select(f"{LATEST}.*")

    def _read(self) -> DataFrame:
        """Return the declared columns, the stored ones, DELETED, and in CORRUPT the text of a malformed record."""
        not_deleted = F.lit(col=False).alias(DELETED)
        format = self._format
        match format:
            case "csv":
                return self.arrived.select(*self._stored_columns(), CORRUPT, FILE, not_deleted)
            case "text":
                (name,) = self.schema.names
                corrupt = F.when(~F.is_valid_utf8(RECORD), F.make_valid_utf8(RECORD))
                return self.arrived.select(F.col(RECORD).alias(name), corrupt.alias(CORRUPT), FILE, not_deleted)
            case "json" | "kafka":
                return self._read_json()
            case _:
                assert_never(format)

    def _read_json(self) -> DataFrame:
        fields = [*self._fields, StructField(CORRUPT, StringType())]
        lines = self.arrived if self._is_kafka else self.arrived.where(F.col(RECORD).rlike(r"\S"))
        parsed = F.from_json(self._text, StructType(fields), {**parsing_options(self.stream.options), **PERMISSIVE})
        read = lines.withColumn(PARSED, parsed)
        false = F.lit(col=False)
        unparsed = F.col(PARSED)[CORRUPT].isNotNull() if self._fields else false
        is_malformed = reduce(lambda any_, fault: any_ | fault[0], self._faults, unparsed)
        corrupt = F.when(F.coalesce(is_malformed, false), F.coalesce(F.make_valid_utf8(self._text), F.lit("")))
        deleted = F.col(RECORD).isNull() if self.stream.key else false
        stored = [name for name in self.arrived.columns if name not in self.schema.names]
        columns = [self._column(field).alias(field.name) for field in self.schema]
        return read.select(*columns, corrupt.alias(CORRUPT), deleted.alias(DELETED), PARSED, *stored)

    def _column(self, field: StructField) -> Column:
        if field.name == self.stream.key:
            return F.col(KEY).cast("string").try_cast(field.dataType)
        if self._is_kafka and own_columns(StructType([field])):
            return own_column(field)
        return F.col(PARSED)[field.name]

    @property
    def _format(self) -> ParsedFormat:
        """The format, if its records can be malformed. Raises ValueError for another one, which is not parsed."""
        if not self.can_fail:
            raise ValueError(f"records of the format {self.stream.format} are not parsed")
        return cast(ParsedFormat, self.stream.format)

    @property
    def _is_kafka(self) -> bool:
        return self.stream.format == KAFKA

    @property
    def _text(self) -> Column:
        """The record as text, which may be invalid UTF-8."""
        return F.col(RECORD).cast("string")

    @property
    def _fields(self) -> list[StructField]:
        """The columns that are fields of the JSON value."""
        others = {field.name for field in own_columns(self.schema)} if self._is_kafka else set[str]()
        fields = [field for field in self.schema if field.name not in others | {self.stream.key}]
        return [StructField(field.name, field.dataType) for field in fields]

    @property
    def _faults(self) -> list[Fault]:
        """The faults of a record that its parser does not find, the first one of which is reported."""
        if not self._is_kafka:
            in_folder = F.col(FILE).rlike(f"/({'|'.join(map(re.escape, self.schema.names))})=[^/]*/")
            return [(~F.is_valid_utf8(RECORD), NOT_UTF8), (in_folder, IN_FOLDER), *self._value_faults]
        return [*self._key_faults, *(self._value_faults if self._fields else []), *self._text_faults]

    @property
    def _value_faults(self) -> list[Fault]:
        """The faults of a record that is not one JSON value; within brackets Spark's parser reads all values."""
        array = F.concat(F.lit("["), self._text, F.lit("]"))
        values = F.from_json(array, "ARRAY<STRING>", parsing_options(self.stream.options))
        several = F.col(RECORD).isNotNull() & (F.coalesce(F.size(values), F.lit(0)) != 1)
        return [
            *([] if self.stream.key else [(F.col(RECORD).isNull(), NO_VALUE)]),
            (~self._text.rlike(r"\S"), NO_RECORD),
            (several & F.col(PARSED)[CORRUPT].isNull(), SEVERAL_VALUES),
        ]

    @property
    def _key_faults(self) -> list[Fault]:
        if self.stream.key is None:
            return []
        field = self.schema[self.stream.key]
        return [
            (F.col(KEY).isNull(), NO_KEY),
            (~F.is_valid_utf8(F.col(KEY).cast("string")), NOT_UTF8),
            (self._column(field).isNull(), f"its key is not a valid {field.dataType.simpleString().upper()}"),
        ]

    @property
    def _text_faults(self) -> list[Fault]:
        """The faults of a message with texts that are not UTF-8."""
        texts = [own_column(field) for field in own_columns(self.schema) if field.dataType == StringType()]
        texts += [self._text] if self._fields else []
        return [(~F.is_valid_utf8(text), NOT_UTF8) for text in texts]

    def _reason(self) -> Column:
        format = self._format
        options = {**FORMAT_DEFAULTS.get(format, {}), **parsing_options(self.stream.options, format)}
        match format:
            case "text":
                return F.lit(NOT_UTF8)
            case "csv":
                return MalformedReason("csv", list(self.schema), options).column()
            case "json" | "kafka":
                return self._json_reason(MalformedReason("json", self._fields, options).column())
            case _:
                assert_never(format)

    def _json_reason(self, parsed: Column) -> Column:
        """Return the reason for a malformed record; parsed: that of its value, read again."""
        reason = F.lit(None).cast("string")
        for condition, words in reversed(self._faults):
            reason = F.when(condition, words).otherwise(reason)
        return F.coalesce(reason, parsed) if self._fields else reason

    def _stored_columns(self) -> list[Column]:
        """Return the stored columns by their declared names."""
        return [F.col(f"c{i}").alias(field.name) for i, field in enumerate(self.schema)]


def malformed_error(name: str, split: Split, count: int, refusal: str = "") -> SourceError:
    """Return the error for malformed records, which cites one of them; refusal: why they are not quarantined."""
    (first,) = split.malformed().limit(1).collect()
    records = "record does" if count == 1 else "records do"
    what = f"{count:,} {records} not fit the declared schema{refusal}"
    fix = "Declare `malformed: quarantine` and land again, or correct the stream or the schema and replay it."
    offset = "" if first["line"] is None else f", offset {first['line']}"
    shown = f"the first one in {first['file']}{offset}: {shorten(first['reason'])}, in {shorten(first['row'])}"
    return SourceError(
        f"source {name} was not landed: {what}, {shown}. {fix}", f"source {name} was not landed: {what}. {fix}"
    )
