"""A pipeline that begins with a file of data."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.cli import exit_codes
from deltafold.lake.protocol import Lake
from deltafold.pipelines import catalogue
from tests.cli.calling import call
from tests.night import sampled


@pytest.mark.parametrize("format", sampled(["csv", "json", "parquet"], lambda format: format != "parquet"))
def test_a_pipeline_begins_with_a_file(
    spark: SparkSession, in_memory: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, format: str
) -> None:
    """Runs as it was made, with the types that the rows have; more files may follow."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path / "pipelines"))
    file = tmp_path / f"New Orders.{format}"
    match format:
        case "csv":
            file.write_text('id;day;shop;price\n1;2024-05-01;"a;b";1.5\n2;2024-05-02;c;\n')
        case "json":
            file.write_text('{"id": 1, "day": "2024-05-01", "lines": [{"n": 1}]}\n{"id": 2, "shop": null}\n')
        case _:
            written = tmp_path / "written"
            spark.sql("select 1 id, date'2024-05-01' day, cast(1.5 as decimal(9,2)) price").write.parquet(str(written))
            next(written.glob("*.parquet")).rename(file)
    result = call("new", "mine", "--from", str(file))
    assert result.exit_code == 0, result.output
    home = tmp_path / "pipelines" / "mine"
    declared = catalogue.load("mine").declaration.sources["new_orders"].files
    assert declared is not None
    assert (
        declared.schema_ddl
        == {
            "csv": "`id` INT, `day` DATE, `shop` STRING, `price` DOUBLE",
            "json": "`day` STRING, `id` BIGINT, `lines` array<struct<n:bigint>>, `shop` STRING",
            "parquet": "`id` INT, `day` DATE, `price` DECIMAL(9,2)",
        }[format]
    )
    assert f"Run it: deltafold run mine\nCheck the types in {home}/pipeline.yaml:\n  " in result.stdout
    result = call("run", "mine")
    assert result.exit_code == 0, result.output
    assert "number" in call("show", "mine").stdout
    assert call("new", "mine", "--from", str(file)).exit_code == exit_codes.USAGE
    assert call("new", "other", "--from", str(tmp_path)).exit_code == exit_codes.USAGE
