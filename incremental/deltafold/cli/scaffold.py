"""Create the folder of a new pipeline: with sample data, of a query, of a file, or as a branch of another one.

The folder of a branch contains copies of the query and of the files beside it, and its own declaration: sources that
the original lands are read from its landed tables, as Delta tables; other paths are made absolute, since they were
relative to the original's folder; there are no schedules, and only the original has its SQL view. Both share the
warehouse, in which the new pipeline has its own folder with a branch of the original's view.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from deltafold.algebra.local_path import is_uri
from deltafold.algebra.sources import is_name
from deltafold.algebra.sqltext import quoted
from deltafold.pipelines import catalogue
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.declaration.values import NAME_RULE, PIPELINE_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.api import View

_DECLARATION = """\
description: Sales per shop and product
sources:
  sales:
    files:
      path: data/sales # one folder per day: data/sales/day=2024-05-01/*.csv
      format: csv
      schema: id BIGINT, day DATE, shop STRING, product STRING, amount DECIMAL(10,2)
      partition_by: day
  shops:
    files:
      path: data/shops
      format: csv
      schema: shop STRING, city STRING
    invariant: true # it never changes, so a join with it keeps no state
partitions: {kind: daily, start: 2024-05-01}
policy: incremental # auto: recompute if the query cannot be maintained
"""

_QUERY = """\
SELECT c.city,
       s.product,
       count(*) AS sales,
       sum(s.amount) AS revenue,
       max(s.amount) AS largest,
       count(DISTINCT s.day) AS days
FROM sales s
JOIN shops c ON s.shop = c.shop
GROUP BY c.city, s.product
"""

_PROGRAM = """\
// Revenue per city and product, in MRQL; docs/reference/mrql.md has the language.
select < city: city, product: product, sales: count(s), revenue: sum(s.amount), largest: max(s.amount) >
from s in sales, c in shops
where s.shop = c.shop
group by (city, product): (c.city, s.product);
"""

_SHOPS = "shop,city\nn1,Oslo\nn2,Oslo\ns1,Rome\n"
_SALES = {
    "2024-05-01": "id,shop,product,amount\n1,n1,tea,3.20\n2,n2,tea,4.10\n3,s1,coffee,2.50\n4,s1,coffee,2.70\n",
    "2024-05-02": "id,shop,product,amount\n5,n1,coffee,3.90\n6,n1,tea,3.20\n7,s1,tea,1.80\n",
    "2024-05-03": "id,shop,product,amount\n8,n2,coffee,4.40\n9,s1,coffee,2.50\n",
}


def make(name: str, folder: Path, *, mrql: bool = False) -> Path:
    """Create the pipeline folder/name with sample data, and return its folder. Raises DeclarationError.

    mrql: the query is a program of MRQL, else SQL. Existing files are not changed: a name that is taken is refused.
    """
    query = {"query.mrql": _PROGRAM} if mrql else {"query.sql": _QUERY}
    files = {"pipeline.yaml": _DECLARATION, **query, "data/shops/shops.csv": _SHOPS}
    files |= {f"data/sales/day={day}/sales.csv": rows for day, rows in _SALES.items()}
    return _create(name, folder, files)


def make_of_query(name: str, folder: Path, sql: Path, tables: Sequence[str]) -> Path:
    """Create the pipeline folder/name of a query over Delta tables, and return its folder. Raises DeclarationError.

    sql: the file of the query, which is copied; tables: SOURCE=PATH, or a path whose last part is the source's name.
    """
    try:
        query = sql.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{sql}: it cannot be read ({error}). Name the file of a SQL query.") from error
    sources = dict[str, dict[str, str]]()
    for table in tables:
        source, is_named, path = table.partition("=")
        if not is_named:
            source, path = table.rstrip("/").rpartition("/")[2], table
        if not is_name(source) or not path:
            raise DeclarationError(f"--delta {table}: {source!r} is not the name of a source. Write SOURCE=PATH.")
        if source in sources:
            raise DeclarationError(f"--delta {table}: {source} is named twice. Remove one of them.")
        if not is_uri(path) and not (Path(path) / "_delta_log").is_dir():
            raise DeclarationError(f"--delta {table}: there is no Delta table at {path}. Correct the path.")
        sources[source] = {"delta": path if is_uri(path) else str(Path(path).absolute())}
    declaration = yaml.safe_dump({"sources": sources}, sort_keys=False, allow_unicode=True)
    return _create(name, folder, {"pipeline.yaml": declaration, "query.sql": query})


FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
DELIMITERS = ",;\t|"


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """A file that a new pipeline begins with, as a source; columns: Spark's type of each, which it has inferred."""

    file: Path
    format: str
    options: Mapping[str, str]
    columns: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the source: that of the file, as SQL writes names."""
        name = re.sub(r"\W+", "_", self.file.name.partition(".")[0].lower(), flags=re.ASCII).strip("_")
        return name if PIPELINE_NAME.match(name) else f"t_{name}"[:63].rstrip("_")

    @property
    def query(self) -> str:
        """A first query: the number of rows, for each value of the first column with text or days."""
        group = next((name for name, type in self.columns.items() if type in ("STRING", "DATE", "BOOLEAN")), None)
        if group is None:
            return f"SELECT count(*) AS number\nFROM {self.name}\n"
        return f"SELECT {quoted(group)}, count(*) AS number\nFROM {self.name}\nGROUP BY {quoted(group)}\n"

    @property
    def declaration(self) -> str:
        """The pipeline.yaml."""
        files: dict[str, Any] = {"path": f"data/{self.name}", "format": self.format}
        if self.options:
            files["options"] = dict(self.options)
        files["schema"] = dict(self.columns)
        content = {"sources": {self.name: {"files": files}}, "policy": "auto"}
        return (
            f"# The schema was inferred from {self.file.name}: check it. A row that does not fit it stops a run.\n"
            f"# Put more files of this kind into data/{self.name}, and run again.\n"
            f"{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}"
        )


def make_of_file(name: str, folder: Path, source: FileSource) -> Path:
    """Create the pipeline folder/name of a file, which is copied, and return its folder. Raises DeclarationError."""
    home = _create(name, folder, {"pipeline.yaml": source.declaration, "query.sql": source.query})
    data = home / "data" / source.name
    data.mkdir(parents=True)
    shutil.copy2(source.file, data / source.file.name)
    return home


def check_file(file: Path) -> str:
    """Return the format of a file, by its name. Raises DeclarationError."""
    if not file.is_file():
        raise DeclarationError(f"--from {file}: there is no such file. Name one of CSV, JSON or Parquet.")
    formats = [FORMATS[suffix] for suffix in map(str.lower, file.suffixes) if suffix in FORMATS]
    if not formats:
        raise DeclarationError(f"--from {file}: its name ends in none of {', '.join(FORMATS)}. Rename it.")
    return formats[-1]


def infer_source(file: Path, format: str, spark: SparkSession) -> FileSource:
    """Return a file as a source, with the schema that Spark infers from all its rows. Raises DeclarationError."""
    from pyspark.errors import PySparkException

    from deltafold.landing.formats import FORMAT_DEFAULTS
    from deltafold.spark.java_errors import sentence_of_analysis

    options = {"delimiter": _find_delimiter(file, spark)} if format == "csv" else {}
    options = {key: value for key, value in options.items() if value != ","}
    reader = spark.read.options(**FORMAT_DEFAULTS.get(format, {}), **options, inferSchema="true", mode="FAILFAST")
    try:
        schema = reader.format(format).load(str(file)).schema
    except PySparkException as error:
        raise DeclarationError(
            f"--from {file}: Spark cannot read it: {sentence_of_analysis(error)}. Correct it."
        ) from error
    columns = {field.name: _write_type(field.dataType.simpleString()) for field in schema}
    if not columns or "_corrupt_record" in columns:
        raise DeclarationError(f"--from {file}: it has no rows of {format}. Write a header, or one object per line.")
    return FileSource(file=file, format=format, options=options, columns=columns)


def _write_type(type: str) -> str:
    """Return a type as a declaration has it: names of fields as they are, a column that is always NULL as text."""
    return type if "<" in type else type.upper().replace("VOID", "STRING")


def _find_delimiter(file: Path, spark: SparkSession) -> str:
    """Return the delimiter that is most frequent in the first line of a file."""
    line = next((row.value for row in spark.read.text(str(file)).take(1)), "")
    return max(DELIMITERS, key=line.count)


def _create(name: str, folder: Path, files: Mapping[str, str]) -> Path:
    """Create a pipeline's folder with these files, and return it. Raises DeclarationError."""
    home = check_new(name, folder)
    try:
        for name_in_home, text in files.items():
            path = home / name_in_home
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DeclarationError(f"{home}: it cannot be created ({error.strerror}). Choose another folder.") from error
    return home


def check_new(name: str, folder: Path) -> Path:
    """Return the folder of a new pipeline. Raises DeclarationError for a name that is taken or invalid."""
    if not PIPELINE_NAME.match(name):
        raise DeclarationError(f"pipeline `{name}`: invalid name. {NAME_RULE}.")
    home = folder / name
    if home.exists() or (folder / f"{name}.py").exists():
        raise DeclarationError(f"{home}: it exists already. Choose another name.")
    return home


def branch_pipeline(pipeline: Pipeline, new: str, spark: SparkSession) -> View:
    """Create the pipeline `new` beside this one; its view starts from this one's last finished epoch.

    Raises DeclarationError for a name that is taken or invalid, StateError if there is no finished epoch.
    """
    home = home_of_branch(pipeline, new)
    _, view = catalogue.open(pipeline, spark)
    scratch = home.with_name(f".{new}.branch")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for file in sorted(path for path in pipeline.folder.iterdir() if path.is_file()):
        shutil.copy2(file, scratch / file.name)
    (scratch / catalogue.DECLARATION_FILE).write_text(declaration(pipeline), encoding="utf-8")
    scratch.rename(home)
    try:
        return view.branch(new, catalogue.open(catalogue.load(new, home.parent), spark)[0])
    except Exception:
        shutil.rmtree(home)
        raise


def home_of_branch(pipeline: Pipeline, new: str) -> Path:
    """Return the folder for a branch; raises DeclarationError for a name that is taken or invalid."""
    if not PIPELINE_NAME.match(new):
        raise DeclarationError(f"pipeline `{new}`: invalid name. {NAME_RULE}.")
    home = pipeline.folder.with_name(new)
    if home.exists():
        raise DeclarationError(f"{home}: it exists already. Choose another name for the branch, or remove it.")
    return home


def declaration(pipeline: Pipeline) -> str:
    """Return the pipeline.yaml of a branch."""
    fields: dict[str, Any] = pipeline.declaration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for key in ("partitions", "schedule", "maintain", "check", "publish_as"):
        fields.pop(key, None)
    sources: dict[str, Any] = fields["sources"]
    for name in pipeline.landed:
        sources[name] = {key: part for key, part in sources[name].items() if key not in ("files", "stream")}
        sources[name]["delta"] = f"{pipeline.warehouse}/sources/{name}"
    fields["description"] = f"Branch of {pipeline.name}, whose landed tables it reads"
    fields["warehouse"] = pipeline.warehouse.rpartition("/")[0]
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
