"""Split what arrived in a stream into the rows of its source and the records that fit none.

| Spark's `from_json` would | here it is malformed |
| --- | --- |
| read the first of two JSON values in a line | the line |
| put � for bytes that are not UTF-8 | the line |
| put NULL for a value of another type | the line |
| put NULL for a column that is in the names of folders (`day=1/`) | the line |

Messages of Kafka are the same, and malformed too without a value, or without a key that fits its column. With a `key`,
a message without a value deletes the row of its key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from deltafold.landing.malformed.parse_errors import NO_RECORD, shorten
from deltafold.landing.malformed.reason import CORRUPT, PERMISSIVE, MalformedReason
from deltafold.landing.reader import FILE
from deltafold.landing.streams.arrivals import parsing_options
from deltafold.landing.streams.kafka import KEY, OFFSET, RECORD, own_column, own_columns

PARSED, GONE, LATEST = "__parsed", "__gone", "__latest"
SEVERAL_VALUES = "text follows its JSON value"
NOT_UTF8 = "it is not UTF-8"
IN_FOLDER = "its file is in a folder that names a column, as Files(…, partition_by=…) reads it"
NO_KEY, NO_VALUE = "it has no key", "it has no value"
GOOD_ROWS, MALFORMED = "rows", "malformed"

Fault = tuple[Column, str]
"""A condition of a malformed record, and the reason."""


@dataclass(frozen=True)
class Split:
    """The records of one landing; arrived: as Intake stored them."""

    stream: Stream
    schema: StructType
    arrived: DataFrame

    @property
    def can_fail(self) -> bool:
        """Whether records can be malformed."""
        return self.stream.format in PARSED_FORMATS

    def rows(self, all_fit: bool) -> DataFrame:
        """Return the rows, with the declared columns; with a key, the latest one of each, unless it was deleted.

        all_fit: no record is malformed, so that none is examined again.
        """
        if not self.can_fail:
            return self.arrived.select(*self._stored_columns())
        if self.stream.key is None and all_fit:
            return self._read().select(*map(quoted, self.schema.names))
        fitting = self._read().where(F.col(CORRUPT).isNull()) if self.stream.key is None else self._latest()
        return fitting.where(~F.col(GONE)).select(*map(quoted, self.schema.names))

    def changes(self) -> DataFrame:
        """Return the latest row of each key, and in GONE whether it is deleted."""
        return self._latest()

    def malformed(self) -> DataFrame:
        """Return the malformed records: origin, offset in it, the record as it arrived, and the reason."""
        broken = self._read().where(F.col(CORRUPT).isNotNull())
        offset = F.col(OFFSET) if self.stream.format == KAFKA else F.lit(None)
        details = {"file": F.col(FILE), "line": offset.cast("bigint"), "row": F.col(CORRUPT), "reason": self._reason()}
        return broken.select(*(value.alias(name) for name, value in details.items()))

    def counts(self) -> tuple[int, int]:
        """Return the number of records that fit and of malformed ones."""
        fits = F.col(CORRUPT).isNull()
        found = self._read().agg(F.count_if(fits).alias(GOOD_ROWS), F.count_if(~fits).alias(MALFORMED)).first()
        assert found is not None
        return int(found[GOOD_ROWS]), int(found[MALFORMED])

    def _latest(self) -> DataFrame:
        assert self.stream.key is not None
        read = self._read().where(F.col(CORRUPT).isNull())
        columns = F.struct(*map(quoted, self.schema.names), GONE)
        order = F.struct(OFFSET, "_timestamp")  # a key has one partition, in which offsets grow
        latest = read.groupBy(quoted(self.stream.key)).agg(F.max_by(columns, order).alias(LATEST))
        return latest.select(f"{LATEST}.*")

    def _read(self) -> DataFrame:
        """Return the stored columns beside the declared ones, GONE, and in CORRUPT the text of a malformed record."""
        never = F.lit(False).alias(GONE)
        format = self._format
        match format:
            case "csv":
                return self.arrived.select(*self._stored_columns(), CORRUPT, FILE, never)
            case "text":
                (name,) = self.schema.names
                broken = F.when(~F.is_valid_utf8(RECORD), F.make_valid_utf8(RECORD))
                return self.arrived.select(F.col(RECORD).alias(name), broken.alias(CORRUPT), FILE, never)
            case "json" | "kafka":
                return self._read_json()
            case _:
                assert_never(format)

    def _read_json(self) -> DataFrame:
        fields = [*self._fields, StructField(CORRUPT, StringType())]
        lines = self.arrived if self._is_kafka else self.arrived.where(F.col(RECORD).rlike(r"\S"))
        parsed = F.from_json(self._text, StructType(fields), {**parsing_options(self.stream.options), **PERMISSIVE})
        read = lines.withColumn(PARSED, parsed)
        unparsed = F.col(PARSED)[CORRUPT].isNotNull() if self._fields else F.lit(False)
        fault = reduce(lambda one, other: one | other[0], self._faults, unparsed)
        broken = F.when(F.coalesce(fault, F.lit(False)), F.coalesce(F.make_valid_utf8(self._text), F.lit("")))
        gone = F.col(RECORD).isNull() if self.stream.key else F.lit(False)
        stored = [name for name in self.arrived.columns if name not in self.schema.names]
        columns = [self._column(field).alias(field.name) for field in self.schema]
        return read.select(*columns, broken.alias(CORRUPT), gone.alias(GONE), PARSED, *stored)

    def _column(self, field: StructField) -> Column:
        if field.name == self.stream.key:
            return F.col(KEY).cast("string").try_cast(field.dataType)
        if self._is_kafka and own_columns(StructType([field])):
            return own_column(field)
        return F.col(PARSED)[field.name]

    @property
    def _format(self) -> ParsedFormat:
        """The format of records that can be malformed; raises ValueError for another one, which is not parsed."""
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
        """The faults of a record that its parser does not find, in the order in which they are told."""
        if not self._is_kafka:
            in_folder = F.col(FILE).rlike(f"/({'|'.join(map(re.escape, self.schema.names))})=[^/]*/")
            return [(~F.is_valid_utf8(RECORD), NOT_UTF8), (in_folder, IN_FOLDER), *self._value_faults]
        return [*self._key_faults, *(self._value_faults if self._fields else []), *self._text_faults]

    @property
    def _value_faults(self) -> list[Fault]:
        """A record is one JSON value; within brackets Spark's parser reads all of it."""
        within = F.concat(F.lit("["), self._text, F.lit("]"))
        listed = F.from_json(within, "ARRAY<STRING>", parsing_options(self.stream.options))
        several = F.col(RECORD).isNotNull() & (F.coalesce(F.size(listed), F.lit(0)) != 1)
        none = [] if self.stream.key else [(F.col(RECORD).isNull(), NO_VALUE)]
        none += [(~self._text.rlike(r"\S"), NO_RECORD)]
        return [*none, (several & F.col(PARSED)[CORRUPT].isNull(), SEVERAL_VALUES)]

    @property
    def _key_faults(self) -> list[Fault]:
        if self.stream.key is None:
            return []
        field = self.schema[self.stream.key]
        wrong = f"its key is not a valid {field.dataType.simpleString().upper()}"
        return [
            (F.col(KEY).isNull(), NO_KEY),
            (~F.is_valid_utf8(F.col(KEY).cast("string")), NOT_UTF8),
            (self._column(field).isNull(), wrong),
        ]

    @property
    def _text_faults(self) -> list[Fault]:
        """The texts of a message that are not UTF-8."""
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
        fields: Sequence[StructField] = self._fields
        reason = F.lit(None).cast("string")
        for condition, words in reversed(self._faults):
            reason = F.when(condition, words).otherwise(reason)
        return F.coalesce(reason, parsed) if fields else reason

    def _stored_columns(self) -> list[Column]:
        """Return the stored columns by their declared names."""
        return [F.col(f"c{i}").alias(field.name) for i, field in enumerate(self.schema)]


def malformed_error(name: str, split: Split, count: int, also: str = "") -> SourceError:
    """Return the error for malformed records, which cites one of them."""
    (first,) = split.malformed().limit(1).collect()
    records = "record does" if count == 1 else "records do"
    what = f"{count:,} {records} not fit the declared schema{also}"
    fix = "Declare `malformed: quarantine` and land again, or correct the stream or the schema and replay it."
    offset = "" if first["line"] is None else f", offset {first['line']}"
    shown = f"the first one in {first['file']}{offset}: {shorten(first['reason'])}, in {shorten(first['row'])}"
    return SourceError(
        f"source {name} was not landed: {what}, {shown}. {fix}", f"source {name} was not landed: {what}. {fix}"
    )
