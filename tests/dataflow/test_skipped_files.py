"""Files are skipped below the operators whose other rows do not depend on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.pruning.key_ranges import restrict_scans
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from tests.night import every

RANGE = "k BETWEEN 25 AND 31"  # in two of six files of each table
BELOW = {
    "a filter": ("select k, v n from t where v > 3", 2),
    "a join": ("select t.k, u.v n from u join t on u.v = t.v", 8),
    "a join by the key": ("select t.k, u.v n from u join t on u.k = t.k join u x on x.k = t.k", 4),
    "a left join by the key": ("select t.k, u.v n from t left join u on t.k = u.k", 4),
    "a join by a computed key": ("select t.k, u.v n from u join t on u.k = t.k + 1", 8),
    "the left of a left join": ("select t.k, u.v n from t left join u on t.v = u.v", 8),
    "the left of a semi join": ("select t.k, t.v n from t left semi join u on u.v = t.v", 8),
    "the left of an anti join": ("select t.k, t.v n from t left anti join u on u.v = t.v", 8),
    "a new name": ("select j k, v + 1 n from (select k j, k * 2 k, v from t)", 2),
    "a computed key": ("select k + 0 k, v n from t", 6),
    "the left of an anti join by the key": ("select t.k, t.v n from t left anti join u on u.k = t.k", 4),
    "the right of a left join": ("select u.k, t.v n from t left join u on t.k = u.k", 12),
    "a full join": ("select t.k, u.v n from t full join u on t.v = u.v", 12),
    "a limit": ("select k, v n from t order by v, k limit 3", 6),
    "a window": ("select k, row_number() over (order by v, k) n from t", 6),
    "an aggregate": ("select max(k) k, count(*) n from t group by v", 6),
    "a condition of the key": ("select k, v n from t where k > 29 and v >= 0", 1),
    "a condition of another name": ("select j k, v n from (select k j, v from t) where 30 <= j and v <> 5", 1),
    "a condition that no file fulfils": ("select k, v n from t where k = 29 and v > 100", 0),
    "a condition below a join": ("select t.k, u.v n from u join (select * from t where k < 30) t on u.v = t.v", 7),
    "a condition that fails where it is asked": ("select k, v n from t where k > 99 and v > 1 div (k - k)", 0),
    "a condition of a computed column": ("select k, v n from (select k, v * 0 v from t) where v < 7", 2),
    "a union": ("select k, v n from t union all select k, v from u", 4),
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two tables of six files, sorted by k."""
    folder, names = tmp_path_factory.mktemp("skipping"), ("t", "u")
    for name in names:
        spread = spark.range(0, 60, 1, 6).selectExpr("int(id) k", "int(id * 7 % 20) v")
        spread.where("k % 3 != 1" if name == "u" else "true").write.format("delta").save(str(folder / name))
    return {name: folder / name for name in names}


@pytest.mark.parametrize("below", every(2, BELOW))
def test_files_are_skipped_below(spark: SparkSession, tables: dict[str, Path], below: str) -> None:
    """Protects from a limit, a window or NULLs that are computed from the files of a key's range alone.

    Each query is restricted to the range afterwards, as the pruned inputs of a refresh are.
    """
    query, files = BELOW[below]
    for name, path in tables.items():
        spark.read.format("delta").option("versionAsOf", 0).load(str(path)).createOrReplaceTempView(name)
    rows = spark.sql(query)
    plan = without_names(spark, catalyst.analysed_plan(rows))
    key = next(a for a in catalyst.sequence(plan.output()) if str(a.name()) == "k")
    restricted = catalyst.frame(spark, restrict_scans(Lowering(spark, {}), plan, key, [("25", "31")], "int"))
    assert sorted(restricted.where(RANGE).collect()) == sorted(rows.where(RANGE).collect())
    assert len(restricted.inputFiles()) == files


def without_names(spark: SparkSession, plan: J) -> J:
    """Return a plan as the lowering builds it: without names of views and tables."""
    rules = catalyst.catalyst(spark)
    plan = catalyst.module(rules.analysis, "EliminateView").apply(plan)
    return catalyst.module(rules.analysis, "EliminateSubqueryAliases").apply(plan)
