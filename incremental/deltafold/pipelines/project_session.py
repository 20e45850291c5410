"""Give query functions of a project a Spark session that reads the project's datasets by name.

The functions of a Spark Declarative Pipelines project call `spark.table`, `spark.read`, `spark.readStream` and
`spark.sql` of a session that is injected into their module, or that they ask `SparkSession.active()` for. Within
`reading`, both are a session whose reads go to a `Reader`; otherwise they are the session itself.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from deltafold.algebra.errors import QueryError
from deltafold.algebra.sqltext import quoted
from deltafold.pipelines.project import Reader

CHANGE_FEED = {"readchangefeed", "readchangedata"}  # options of a stream whose rows are changes, with other columns
_READER: ContextVar[Reader | None] = ContextVar("reader", default=None)


class ProjectSession(SparkSession):
    """The Spark session of query functions, over the Java session of another one."""

    def __new__(cls, spark: SparkSession) -> ProjectSession:  # pyright: ignore[reportInconsistentConstructor]
        """Return a session that shares everything with another one."""
        session = object.__new__(cls)
        session.__dict__.update(spark.__dict__)
        return session

    def __init__(self, spark: SparkSession) -> None:
        pass  # Spark's would register it as the session of the process

    def table(self, tableName: str) -> DataFrame:  # noqa: N803 - Spark's names
        """Return the rows of a dataset or table."""
        reader = _READER.get()
        return super().table(tableName) if reader is None else reader.table(tableName)

    def sql(self, sqlQuery: str, args: Any = None, **kwargs: Any) -> DataFrame:  # noqa: N803
        """Return the frame of a SQL text over datasets and tables."""
        reader = _READER.get()
        if reader is None:
            return cast(Any, super()).sql(sqlQuery, args, **kwargs)
        if args or kwargs:
            raise QueryError("query: it passes arguments to `spark.sql`. Write the values into the text.")
        return reader.sql(sqlQuery)

    @property
    def read(self) -> DataFrameReader:
        """Return a reader of datasets, tables and files."""
        return ProjectReader(self)

    @property
    def readStream(self) -> DataStreamReader:  # noqa: N802
        """Return a reader of streams."""
        return ProjectStreamReader(self)


class _Remembering:
    """Remembers the format and the options that a reader of Spark is given."""

    def __init__(self, spark: SparkSession) -> None:
        cast(Any, super()).__init__(spark)
        self._named = ""
        self._options = dict[str, Any]()

    def format(self, source: str) -> Any:
        """Set the format."""
        self._named = source.lower()
        return cast(Any, super()).format(source)

    def option(self, key: str, value: Any) -> Any:
        """Set an option."""
        return self.options(**{key: value})

    def options(self, **options: Any) -> Any:
        """Set options."""
        self._options |= options
        return cast(Any, super()).options(**options)


class ProjectReader(_Remembering, DataFrameReader):
    """Reads datasets and tables by name, Delta tables by path, and files as Spark does."""

    def table(self, tableName: str) -> DataFrame:  # noqa: N803
        """Return the rows of a dataset or table."""
        reader = _READER.get()
        if reader is None:
            return super().table(tableName)
        if self._options:
            raise QueryError(f"query: it reads {tableName} with options ({', '.join(self._options)}). Remove them.")
        return reader.table(tableName)

    def load(self, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> DataFrame:
        """Return the rows of files, or of a Delta table by its path."""
        reader = _READER.get()
        is_delta = (format or self._named) == "delta"
        if reader is not None and is_delta and isinstance(path, str) and schema is None and not self._options | options:
            return reader.table(f"delta.{quoted(path)}")
        return super().load(path, format, schema, **options)


class ProjectStreamReader(_Remembering, DataStreamReader):
    """Reads tables by name as streams, Delta tables by path, and other streams as Spark does."""

    def table(self, tableName: str) -> DataFrame:  # noqa: N803
        """Return the rows of a table as a stream."""
        reader = _READER.get()
        return super().table(tableName) if reader is None else reader.stream(tableName, self._options)

    def load(self, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> DataFrame:
        """Return the rows of files as a stream, or of a Delta table by its path, which the project knows as a table."""
        reader, asked = _READER.get(), self._options | options
        is_delta = (format or self._named) == "delta" and isinstance(path, str) and schema is None
        if reader is not None and is_delta and not CHANGE_FEED.intersection(map(str.lower, asked)):
            return reader.stream(f"delta.{quoted(path)}", asked)
        return super().load(path, format, schema, **options)


class _Active:
    """Makes a session the active one of the process while any thread evaluates a function."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._replaced = dict[str, Any]()

    def enter(self, session: ProjectSession) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            answer = staticmethod(lambda: session)
            for name, value in {"active": answer, "getActiveSession": answer, "_instantiatedSession": session}.items():
                self._replaced[name] = SparkSession.__dict__[name]
                setattr(SparkSession, name, value)

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for name, value in self._replaced.items():
                    setattr(SparkSession, name, value)


_ACTIVE = _Active()


@contextmanager
def active(session: ProjectSession) -> Generator[None]:
    """Make `SparkSession.active()` and `builder.getOrCreate()` return the session, as in Spark's own pipelines."""
    _ACTIVE.enter(session)
    try:
        yield
    finally:
        _ACTIVE.leave()


@contextmanager
def reading(session: ProjectSession, reader: Reader) -> Generator[None]:
    """Let the session read by a reader in this thread."""
    token = _READER.set(reader)
    try:
        with active(session):
            yield
    finally:
        _READER.reset(token)
