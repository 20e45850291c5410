"""Write to the sources of a soak as others do: SQL on their tables, and files that are added, changed and removed.

Each has the arguments that were drawn for it, so that the same seed does the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from random import Random

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltafold.spark.catalyst import JavaError
from tests.soak.soak_sandbox import SoakSandbox

COLUMNS = {"orders": "id, k, v, q, x", "dims": "k, name"}
MOST_COLUMNS = 7
Write = Callable[[SoakSandbox, str, Random], str]


def insert(world: SoakSandbox, table: str, draw: Random, spark: SparkSession | None = None) -> str:
    """A few rows, some of them equal."""
    values = [row(table, draw) for _ in range(draw.randint(1, 8))]
    values += draw.choices(values, k=draw.randint(0, 2))
    world.sql(f"insert into {{{table}}} ({COLUMNS[table]}) values {', '.join(values)}", spark)
    return f"{len(values)} rows"


def update(world: SoakSandbox, table: str, draw: Random, spark: SparkSession | None = None) -> str:
    values = ("k = coalesce(k, 0) + 1", f"v = v + {draw.randint(-5, 5)}, x = x * 1.1", "q = (q + 1) % 4", "k = null")
    change = draw.choice(values) if table == "orders" else f"name = concat(name, '{draw.randint(0, 9)}')"
    world.sql(f"update {{{table}}} set {change} where {some(table, draw)}", spark)
    return change


def delete(world: SoakSandbox, table: str, draw: Random, spark: SparkSession | None = None) -> str:
    where = some(table, draw)
    world.sql(f"delete from {{{table}}} where {where}", spark)
    return where


def merge(world: SoakSandbox, table: str, draw: Random) -> str:
    """Some rows match, of which some go; others are new."""
    low = draw.randint(0, 80)
    if table == "dims":
        new = f"select explode(sequence({low % 8}, {low % 8 + 2})) k, 'm{low}' name"
        rule = "t.k = u.k when matched and t.name > 'p' then delete when matched then update set name = u.name "
    else:
        new = f"select i id, i % 6 k, i % 13 v, i % 4 q, i / 3 x from (select explode(sequence({low}, {low + 12})) i)"
        rule = "t.id = u.id when matched and t.q = 1 then delete when matched then update set v = u.v, q = u.q "
    values = ", ".join(f"u.{name}" for name in COLUMNS[table].split(", "))
    insertion = f"when not matched then insert ({COLUMNS[table]}) values ({values})"
    world.sql(f"merge into {{{table}}} t using ({new}) u on {rule} {insertion}")
    return f"from {low}"


def overwrite(world: SoakSandbox, table: str, draw: Random) -> str:
    """Most rows as they were, in other files."""
    path = str(world.folder / table)
    rows = world.spark.read.format("delta").load(path).where(f"not coalesce({some(table, draw)}, false)")
    if table == "orders":
        rows = rows.withColumn("v", F.expr(f"if(id % 10 = {draw.randint(0, 9)}, v + 1, v)"))
    rows.repartition(draw.randint(1, 3)).write.format("delta").mode("overwrite").save(path)
    return "anew"


def optimize(world: SoakSandbox, table: str, draw: Random) -> str:
    world.sql(f"optimize {{{table}}}")
    return "compacted"


def vacuum(world: SoakSandbox, table: str, draw: Random) -> str:
    """With the retention that whoever reads the table needs."""
    storage, oldest = world.storage(table), world.needed(table)
    hours = 0.0 if oldest is None else storage.needed_hours(oldest)
    if hours is None:
        return f"left alone for version {oldest}"
    before = storage.usage()[0]
    storage.remove_older(hours)
    return f"{before - storage.usage()[0]} files removed, {oldest} is needed"


def restore(world: SoakSandbox, table: str, draw: Random) -> str:
    latest = world.storage(table).version() or 0
    version = max(0, latest - draw.randint(1, 5))
    try:
        world.sql(f"restore table {{{table}}} to version as of {version}")
    except JavaError as error:
        if "MISSING" not in str(error).upper():
            raise
        return f"{version} is vacuumed"
    return f"to {version}"


def add_column(world: SoakSandbox, table: str, draw: Random) -> str:
    latest = len(world.storage(table).schema().names)
    if latest >= MOST_COLUMNS:
        return "has enough"
    world.sql(f"alter table {{{table}}} add column more_{draw.randint(0, 10**9)} string")
    return f"{latest + 1} now"


def put(world: SoakSandbox, table: str, draw: Random) -> str:
    """A day's file comes, is corrected, or comes late."""
    day = f"2024-05-0{draw.randint(1, 6)}"
    rows = [(draw.randint(0, 6), draw.randint(-9, 9)) for _ in range(draw.randint(0, 6))]
    world.put(day, rows)
    return f"{day}, {len(rows)} rows"


def put_back(world: SoakSandbox, table: str, draw: Random) -> str:
    """A day's file as it was at the beginning."""
    day = draw.randint(1, 3)
    world.put(f"2024-05-0{day}", [(day, day), (day % 2, 3), (4, 5)])
    return f"2024-05-0{day}"


def take_away(world: SoakSandbox, table: str, draw: Random) -> str:
    day = f"2024-05-0{draw.randint(1, 6)}"
    shutil.rmtree(world.drop / f"day={day}", ignore_errors=True)
    return day


def row(table: str, draw: Random) -> str:
    key = draw.choice(["null", *map(str, range(7))])
    if table == "dims":
        return f"({key}, '{draw.choice('abcxyz')}')"
    return f"({draw.randint(0, 99)}, {key}, {draw.randint(-20, 20)}, {draw.randint(0, 3)}, {draw.randint(0, 99) / 10})"


def some(table: str, draw: Random) -> str:
    """A condition that a part of the rows fulfil."""
    if table == "dims":
        return draw.choice([f"k = {draw.randint(0, 6)}", f"name < '{draw.choice('bdz')}' and k > 2", "k is null"])
    number = draw.randint(0, 9)
    return draw.choice([f"id % 10 = {number}", f"k = {number}", f"v > {number + 5}", f"id between {number} and 20"])


ON_TABLES: dict[str, tuple[int, Write]] = {
    "insert": (14, insert), "update": (7, update), "delete": (7, delete), "merge": (5, merge),
    "overwrite": (2, overwrite), "optimize": (4, optimize), "vacuum": (4, vacuum), "restore": (2, restore),
    "add a column": (1, add_column),
}  # fmt: skip
ON_FILES: dict[str, tuple[int, Write]] = {"put": (6, put), "put back": (3, put_back), "take away": (3, take_away)}
"""How often each is done, and the deed."""


def meanwhile(world: SoakSandbox, spark: SparkSession, table: str, draw: Random, times: int) -> None:
    """Writes of somebody else, who has a session of their own."""
    for _ in range(times):
        draw.choice((insert, delete, update))(world, table, draw, spark)
