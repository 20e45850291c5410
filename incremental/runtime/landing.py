"""Runtime room: dropped files → landed Delta table. In: a `Files` source. Out: one commit with its changed partitions.

Landing a partition replaces it whole (`replaceWhere`), so landing it again is an exact correction, whatever changed.
A manifest beside the table remembers which files each partition had, so that unchanged partitions are left alone.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.errors import SourceError
from incremental.algebra.report import Landing
from incremental.algebra.sources import Files
from incremental.runtime.journal import lock
from incremental.runtime.lake import Table

WHOLE = "*"  # the one partition of a source without a partition column
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
DEFAULTS = {"csv": {"header": "true", "enforceSchema": "false"}, "json": {}, "parquet": {}}
Manifest = dict[str, list[list[object]]]


@dataclass(frozen=True)
class Landings:
    """Lands the files of one source into its table."""

    spark: SparkSession
    name: str
    files: Files
    table: Table
    folder: Path

    def land(self, partitions: Sequence[str] | None) -> Landing:
        """Land the named partitions, or all that changed; raises SourceError for malformed rows, with file and reason."""
        start = time.monotonic()
        with lock(self.folder, f"source {self.name}", 600.0):
            present, known = self._present(), self._known()
            wanted = self._wanted(partitions, present, known)
            changed = [p for p in wanted if p in present and (partitions is not None or present[p] != known.get(p))]
            removed = [p for p in wanted if p not in present]
            rows = self._write(changed, removed) if changed or removed else 0
            keep = {p: files for p, files in known.items() if p not in removed}
            self._remember(keep | {p: present[p] for p in changed})
        version = self.table.version()
        if version is None:
            raise SourceError(
                f"source {self.name} has no files yet in {self.files.path}: put some there and land again"
            )
        unchanged = tuple(p for p in wanted if p in present and p not in changed)
        return Landing(self.name, version, tuple(changed), unchanged, tuple(removed), rows, time.monotonic() - start)

    def _wanted(self, partitions: Sequence[str] | None, present: Manifest, known: Manifest) -> list[str]:
        if partitions is None:
            return sorted({*present, *known})
        for partition in partitions:
            if partition not in present and partition not in known:
                where = f"{self.files.path}/{self.files.partition_by}={partition}"
                raise SourceError(f"source {self.name} has no partition {partition!r}: there are no files at {where}")
        return list(dict.fromkeys(partitions))

    def _present(self) -> Manifest:
        """The data files of every partition in the folder, by name, size and time of change."""
        root = Path(self.files.path)
        if not root.is_dir():
            raise SourceError(f"source {self.name}: there is no folder {root}: create it, or correct the path")
        if self.files.partition_by is None:
            folders = {WHOLE: root}
        else:
            pairs = (folder.name.split("=", 1) for folder in root.iterdir() if folder.is_dir() and "=" in folder.name)
            folders = {unquote(v): root / f"{k}={v}" for k, v in pairs if k == self.files.partition_by}
        found = {partition: data_files(folder) for partition, folder in folders.items()}
        return {partition: files for partition, files in sorted(found.items()) if files}

    def _write(self, changed: Sequence[str], removed: Sequence[str]) -> int:
        frame = self._read(changed)
        column = self.files.partition_by
        condition = "true" if column is None else partition_condition(column, [*changed, *removed])
        try:
            return self.table.replace_where(
                frame, condition, json.dumps({"landed": [*changed], "removed": [*removed]}), column
            )
        except (PySparkException, Py4JJavaError) as error:
            raise SourceError(f"source {self.name} was not landed: {malformed(str(error))}") from error

    def _read(self, partitions: Sequence[str]) -> DataFrame:
        files, schema = self.files, StructType.fromDDL(self.files.schema)
        if not partitions:
            return self.spark.createDataFrame([], schema)
        reader = self.spark.read.schema(schema).option("mode", "FAILFAST").option("basePath", files.path)
        reader = reader.options(**{**DEFAULTS[files.format], **files.options})
        if files.partition_by is None:
            paths = [str(Path(files.path) / str(entry[0])) for entry in data_files(Path(files.path))]
        else:
            names = {unquote(f.name.split("=", 1)[1]): f for f in Path(files.path).glob(f"{files.partition_by}=*")}
            paths = [str(names[p]) for p in partitions]
        frame = reader.format(files.format).load([literal_path(path) for path in paths])
        return frame.select(*(f"`{name}`" for name in schema.names))

    def _known(self) -> Manifest:
        path = self.folder / "manifest.json"
        if self.table.version() is None or not path.exists():
            return {}
        return json.loads(path.read_text())

    def _remember(self, manifest: Manifest) -> None:
        scratch = self.folder / "manifest.tmp"
        scratch.write_text(json.dumps(manifest, sort_keys=True))
        scratch.replace(self.folder / "manifest.json")


def data_files(folder: Path) -> list[list[object]]:
    """The files of a folder that hold data: name, bytes, nanoseconds of the last change."""
    files = sorted(f for f in folder.iterdir() if f.is_file() and f.name[0] not in "._")
    return [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]


def literal_path(path: str) -> str:
    """A path in which Spark sees no wildcards."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def partition_condition(column: str, partitions: Sequence[str]) -> str:
    """SQL that holds for the rows of some partitions; values are quoted, NULL is Hive's default partition."""
    name = "`" + column.replace("`", "``") + "`"
    values = ["'" + p.replace("\\", "\\\\").replace("'", "\\'") + "'" for p in partitions if p != HIVE_NULL]
    tests = [f"{name} IN ({', '.join(values)})"] if values else []
    return " OR ".join(tests + ([f"{name} IS NULL"] if HIVE_NULL in partitions else []))


def malformed(text: str) -> str:
    """What Spark says of a bad file, as one sentence with the file and the reason."""
    file = re.search(r"reading file (\S+?)\.?\s", text) or re.search(r"(file:\S+)", text)
    record = re.search(r"Malformed records are detected in record parsing: (.+?)\.\n", text)
    header = re.search(r"CSV header does not conform to the schema\.(.+?)CSV file", text, re.DOTALL)
    where = f"in {file[1].rstrip('.')} " if file else ""
    if record:
        return f"{where}the row {record[1]} does not fit the declared schema: correct the file, or the schema, and land again"
    if header:
        return f"{where}the header does not fit the declared schema ({' '.join(header[1].split())})"
    return f"{where}{text.split('JVM stacktrace')[0].strip().splitlines()[0]}"
