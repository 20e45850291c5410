"""Read Delta tables with other engines, in their own environment: `python foreign_readers.py FOLDER`.

A file `NAME.path` in FOLDER has the path of a table, and `NAME.arrow` the rows that it must have. Prints, as JSON, by
table and reader: `yes`, `more columns`, `wrong` or `refuses`, and what it read or said.
"""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import daft
import duckdb
import duckdb_extension_delta
import polars
import pyarrow as pa
from deltalake import DeltaTable

EXTENSION = next(Path(str(duckdb_extension_delta.__file__)).parent.glob("extensions/*/delta.duckdb_extension"))
Row = tuple[Any, ...]


def by_pandas(path: str) -> tuple[list[str], list[Row]]:
    frame = DeltaTable(path).to_pandas()
    return list(frame.columns), list(frame.itertuples(index=False, name=None))


def by_duckdb(path: str) -> pa.Table:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{EXTENSION}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection.sql(f"FROM delta_scan('{path}')").to_arrow_table()


READERS: dict[str, Callable[[str], Any]] = {
    "deltalake": lambda path: DeltaTable(path).to_pyarrow_table(),
    "pandas": by_pandas,
    "Polars": lambda path: polars.read_delta(path).to_arrow(),
    "DuckDB": by_duckdb,
    "Daft": lambda path: daft.read_deltalake(path).to_arrow(),
}


def frozen(value: Any) -> Any:
    """A value that can be counted, the same for every reader: maps are lists of pairs, structs are dictionaries."""
    if hasattr(value, "tolist"):
        value = value.tolist()  # numpy's
    if isinstance(value, datetime.datetime):
        value = getattr(value, "to_pydatetime", lambda: value)()  # pandas' own
        return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        if set(value) == {"key", "value"}:
            return frozen(value["key"]), frozen(value["value"])
        return tuple(sorted((str(key), frozen(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return None if value != value else value  # pandas has NaN and NaT for NULL


def bag(found: Any) -> tuple[list[str], Counter[Row]]:
    if isinstance(found, pa.Table):
        names, rows = found.column_names, [tuple(row.values()) for row in found.to_pylist()]
    else:
        names, rows = found
    return names, Counter(tuple(map(frozen, row)) for row in rows)


def tried(read: Callable[[str], Any], path: str, expected: pa.Table) -> str:
    wanted, counted = bag(expected)
    try:
        names, rows = bag(read(path))
    except Exception as error:  # whatever an engine raises is its answer
        return f"refuses: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if not set(wanted) <= set(names):
        return f"wrong: columns {', '.join(names)}"
    places = [names.index(name) for name in wanted]
    shown = Counter(tuple(row[place] for place in places) for row in rows.elements())
    more, less = list((shown - counted).items())[:3], list((counted - shown).items())[:3]
    if more or less:
        return f"wrong: {more} instead of {less}"
    return "yes" if names == wanted else f"more columns: {', '.join(names)}"


def main(folder: Path) -> None:
    told: dict[str, dict[str, str]] = {}
    for file in sorted(folder.glob("*.arrow")):
        with pa.OSFile(str(file)) as source:
            expected = pa.ipc.open_stream(source).read_all()
        path = file.with_suffix(".path").read_text()
        told[file.stem] = {name: tried(read, path, expected) for name, read in READERS.items()}
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
