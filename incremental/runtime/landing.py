"""Runtime room: dropped files → landed Delta table. In: a `Files` source. Out: one commit with its changed partitions.

Landing a partition replaces it whole (`replaceWhere`), so landing it again is an exact correction, whatever changed.
A manifest beside the table remembers what each partition's files contained, so that unchanged ones are left alone;
before a commit it forgets what that replaces. Without one, or where the source is declared otherwise, all land anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, DataType, StringType, StructField, StructType

from incremental import catalyst
from incremental.algebra.errors import SourceError
from incremental.algebra.report import Landing
from incremental.algebra.sources import Files
from incremental.catalyst import JavaError
from incremental.runtime.causes import causes, first_line
from incremental.runtime.complaint import file_of, reason_of
from incremental.runtime.content import check_content
from incremental.runtime.dropped import (
    HIVE_NULL,
    WHOLE,
    Facts,
    Partition,
    data_files,
    digest,
    partitions_in,
    reading,
    spark_value,
)
from incremental.runtime.journal import lock
from incremental.runtime.lake import Table
from incremental.runtime.layout import quoted

LOCK_SECONDS = 600.0
CORRUPT = "__corrupt"
WILD = set("[]{}*?\\")
DEFAULTS = {
    # RFC 4180: a quote within quotes is doubled, and a quoted value may hold line breaks
    "csv": {"header": "true", "enforceSchema": "false", "multiLine": "true", "escape": '"'},
    "json": {},
    "parquet": {},
}
# What makes reading exact is not for a source's options to change.
FIXED = {
    "mode": "FAILFAST",
    "__globPaths__": "false",  # [ ] { } * ? in a name are no wildcards
    "recursiveFileLookup": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
REFUSED = {*FIXED, "basePath", "pathGlobFilter", "modifiedBefore", "modifiedAfter", "columnNameOfCorruptRecord"}


@dataclass(frozen=True)
class Known:
    """What the manifest says of a partition: the facts of its files, and a digest of their content."""

    files: Facts
    digest: str


@dataclass(frozen=True)
class Landings:
    """Lands the files of one source into its table."""

    spark: SparkSession
    name: str
    files: Files
    table: Table
    folder: Path

    def land(self, partitions: Sequence[str] | None) -> Landing:
        """Land what changed of the named partitions (they are compared by content), or of all.

        Raises SourceError for malformed rows and files, with file, row and reason; nothing is landed then.
        """
        start = time.monotonic()
        with lock(self.folder, f"source {self.name}", "landed", LOCK_SECONDS), reading(self.name):
            schema, version = self._schema(), self.table.version()
            present = partitions_in(self.name, self.files)
            manifest = {} if version is None else self._manifest()
            anew, known = manifest is None, manifest or {}
            wanted = list(present) if anew else self._wanted(partitions, present, known)
            removed = tuple(p for p in wanted if p not in present)
            seen = {p: self._seen(present[p], known.get(p), partitions is not None) for p in wanted if p in present}
            changed = tuple(p for p in seen if p not in known or seen[p].digest != known[p].digest)
            rows = 0
            if changed or removed or anew:
                self._check(schema, present, changed)
                # so that after a crash nobody takes what the commit replaced for what is landed
                self._remember(None if anew else {**known, **dict.fromkeys((*changed, *removed), Known([], ""))})
                rows = self._write(schema, [present[p] for p in changed], removed, anew)
            self._remember({p: kept for p, kept in known.items() if p not in removed} | seen)
            version = self.table.version()
        if version is None:
            raise SourceError(
                f"source {self.name} has no files yet in {self.files.path}: put some there and land again"
            )
        unchanged = tuple(p for p in seen if p not in changed)
        return Landing(self.name, version, changed, unchanged, removed, rows, time.monotonic() - start)

    def partitions(self) -> tuple[str, ...]:
        """Every partition that has been dropped or landed, in order."""
        with reading(self.name):
            return tuple(sorted({*partitions_in(self.name, self.files), *(self._manifest() or {})}))

    def _schema(self) -> StructType:
        """The declared schema, checked against the declaration and the landed table."""
        schema = declared_schema(self.name, self.files)
        column, fixed = self.files.partition_by, refused(self.files.options)
        if column is not None and (column not in schema.names or not isinstance(schema[column].dataType, AtomicType)):
            raise SourceError(f"source {self.name}: its partition column {column} is no plain column of its schema")
        if fixed:
            raise SourceError(f"source {self.name}: the option {fixed[0]} is not for a source to set: remove it")
        if self.table.version() is not None:
            landed = types(self.table.schema())
            if landed != types(schema):
                raise SourceError(
                    f"source {self.name} is declared with another schema than its landed table has ({landed}): "
                    f"declare it under another name, or remove {self.table.path} and rebuild the views that read it"
                )
        return schema

    def _wanted(
        self, partitions: Sequence[str] | None, present: Mapping[str, Partition], known: Mapping[str, Known]
    ) -> list[str]:
        if partitions is None:
            return sorted({*present, *known})
        for partition in partitions:
            if partition not in present and partition not in known:
                where = f"{self.files.path}/{self.files.partition_by}={partition}"
                raise SourceError(f"source {self.name} has no partition {partition!r}: there are no files at {where}")
        return list(dict.fromkeys(partitions))

    def _seen(self, partition: Partition, known: Known | None, closely: bool) -> Known:
        if known is not None and not closely and known.files == partition.files:
            return known
        return Known(partition.files, digest(partition.paths))

    def _check(self, schema: StructType, present: Mapping[str, Partition], changed: Sequence[str]) -> None:
        """Raises SourceError for what Spark would read wrongly: file contents, and partition values."""
        column = self.files.partition_by
        columns = [name for name in schema.names if name != column]
        for partition in changed:
            for path in present[partition].paths:
                check_content(self.name, self.files, columns, path)
        if column is None or isinstance(schema[column].dataType, StringType):
            return
        type_, found = schema[column].dataType.simpleString(), dict[str, str]()
        keys = [key for key in present if key != HIVE_NULL]
        rows = ", ".join(f"({literal(key)})" for key in keys) or "(NULL)"
        sql = f"SELECT k, CAST(try_cast(k AS {type_}) AS STRING) FROM VALUES {rows} AS t(k)"
        for key, value in cast(Any, self.spark).sql(sql).collect() if keys else ():
            if value is None:
                raise SourceError(f"source {self.name}: {present[key].folder} is no partition: {key!r} is no {type_}")
            if value in found:
                folders = f"{present[found[value]].folder} and {present[key].folder}"
                raise SourceError(f"source {self.name}: {folders} are the same partition: keep one")
            found[value] = key

    def _write(self, schema: StructType, changed: Sequence[Partition], removed: Sequence[str], anew: bool) -> int:
        column, keys = self.files.partition_by, [partition.key for partition in changed]
        condition = "true"
        if column is not None and not anew:
            condition = partition_condition(column, schema[column].dataType, [*keys, *removed])
        metadata = json.dumps({"landed": keys, "removed": [*removed]})
        try:
            return self.table.replace_where(self._rows(schema, changed), condition, metadata, column)
        except JavaError as error:
            raise self._complaint(schema, changed, causes(error)) from error

    def _rows(self, schema: StructType, changed: Sequence[Partition]) -> DataFrame:
        """The rows of some partitions; of none, no rows."""
        version, column = self.table.version(), self.files.partition_by
        if not changed and version is not None:
            return self.table.at(version).limit(0)
        fields = [StructField(f.name, StringType() if f.name == column else f.dataType) for f in schema]
        paths = [str(path) for partition in changed for path in partition.paths]
        frame = self._read(fields, paths, {"basePath": str(Path(self.files.path).absolute())})
        values = {field.name: F.col(quoted(field.name)) for field in schema}
        if column is not None:
            raw = value = values[column]
            for partition in changed:
                if partition.key not in (HIVE_NULL, spark_value(partition.folder)):
                    value = F.when(raw == F.lit(spark_value(partition.folder)), F.lit(partition.key)).otherwise(value)
            values[column] = value.cast(schema[column].dataType)
        return frame.select(*(value.alias(name) for name, value in values.items()))

    def _read(self, fields: list[StructField], paths: list[str], settings: Mapping[str, str]) -> DataFrame:
        options = {**DEFAULTS[self.files.format], **self.files.options, **FIXED, **settings}
        reader = self.spark.read.schema(StructType(fields)).options(**options).format(self.files.format)
        plain = [path for path in paths if not WILD & set(path)]
        # where wildcards are off, Spark reads all paths once more for each that looks like one: so each by itself
        loads = ([plain] if plain else []) + [[path] for path in paths if WILD & set(path)]
        return reduce(DataFrame.unionByName, [reader.load(load) for load in loads])

    def _complaint(self, schema: StructType, changed: Sequence[Partition], messages: list[str]) -> SourceError:
        """What to say of files that Spark could not read, or of a table that it could not write."""
        paths = [path for partition in changed for path in partition.paths]
        for path in paths:
            path.stat()  # one that is gone is the reason
        path, reason = file_of(messages), reason_of(messages)
        if path not in paths:
            return SourceError(f"source {self.name} was not landed: {reason}")
        row = self._malformed_row(schema, path) if self.files.format != "parquet" else None
        where, what = (f", line {line_of(path, row)},", f" in the row {row}") if row is not None else ("", "")
        return SourceError(
            f"source {self.name} was not landed: {path}{where} does not fit the declared schema{what}: {reason}; "
            "correct the file, or the schema, and land again"
        )

    def _malformed_row(self, schema: StructType, path: Path) -> str | None:
        """The first row of a file that does not fit, as it stands there; None where that cannot be told."""
        fields = [StructField(f.name, f.dataType) for f in schema if f.name != self.files.partition_by]
        fields.append(StructField(CORRUPT, StringType()))
        settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        try:
            found = self._read(fields, [str(path)], settings).where(F.col(CORRUPT).isNotNull()).first()
        except JavaError:
            return None
        return None if found is None else str(found[CORRUPT])

    @property
    def _declared(self) -> str:
        """What the content of the table depends on beside the files."""
        return json.dumps([self.files.format, self.files.partition_by, sorted(self.files.options.items())])

    def _manifest(self) -> dict[str, Known] | None:
        """What is landed; None where nobody knows."""
        try:
            content = json.loads((self.folder / "manifest.json").read_text())
            if content["declared"] != self._declared:
                return None
            return {key: Known(**known) for key, known in content["partitions"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _remember(self, partitions: Mapping[str, Known] | None) -> None:
        """Write what is landed; None: nobody knows."""
        told = {key: asdict(known) for key, known in (partitions or {}).items()}
        content = {} if partitions is None else {"declared": self._declared, "partitions": told}
        scratch = self.folder / "manifest.tmp"
        scratch.write_text(json.dumps(content, sort_keys=True))
        scratch.replace(self.folder / "manifest.json")


def declared_schema(source: str, files: Files) -> StructType:
    """The schema of dropped files; raises SourceError for what Spark cannot read as one."""
    try:
        schema = catalyst.schema_of(files.schema)
    except JavaError as error:
        reason = next((line for line in map(first_line, causes(error)) if line), "it does not parse")
        raise SourceError(f"source {source}: {files.schema!r} is no schema: {reason}") from error
    if not schema.names:
        raise SourceError(f"source {source} is declared without columns: give it a schema such as 'id INT, day DATE'")
    return schema


def types(schema: StructType) -> dict[str, str]:
    """Column names and types, whatever their order and whether they may be NULL."""
    return {field.name: field.dataType.simpleString() for field in schema}


def refused(options: Mapping[str, str]) -> list[str]:
    """The options that a source may not set, however they are spelt: Spark does not tell cases apart."""
    names = {name.lower() for name in REFUSED}
    return sorted(option for option in options if option.lower() in names)


def literal(text: str) -> str:
    """A text inside SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def partition_condition(column: str, data_type: DataType, keys: Sequence[str]) -> str:
    """SQL that holds for the rows of some partitions; NULL is Hive's default partition."""
    values = [f"CAST({literal(key)} AS {data_type.simpleString()})" for key in keys if key != HIVE_NULL]
    tests = [f"{quoted(column)} IN ({', '.join(values)})"] if values else []
    return " OR ".join(tests + ([f"{quoted(column)} IS NULL"] if HIVE_NULL in keys else []))


def line_of(path: Path, row: str) -> int:
    """The number of the line where a row begins."""
    wanted = row.splitlines()[0] if row else ""
    with path.open(encoding="utf-8", errors="replace") as text:
        return next((number for number, line in enumerate(text, 1) if line.rstrip("\r\n") == wanted), 1)


__all__ = ["WHOLE", "Landings", "data_files"]
