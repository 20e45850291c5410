"""A warehouse of an earlier release opens unchanged: each view goes on where it was, in the same generation."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltafold.api
from tests.released import shop

VERIFIED = ("totals", "paths")  # by day
RELEASES = sorted(Path(__file__).parent.glob("*.tar.gz"))


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_warehouse_of_a_release_goes_on(spark: SparkSession, tmp_path: Path, release: Path, long: bool) -> None:
    """Protects every warehouse from being rebuilt after an upgrade; the archive is opened in another folder."""
    with tarfile.open(release) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "shop"
    made = json.loads((folder / "made.json").read_text())
    _, views = shop.open_views(deltafold.api, spark, folder)
    if made["python"] != list(sys.version_info[:2]):
        del views["prices"]  # the bytecode of its Python function is another one
    opened = {name: [view.history()[-1].epoch, *view.answer().columns] for name, view in views.items()}
    assert opened == {name: made["views"][name] for name in views}
    assert views["totals"].refresh().verdict == "nothing to do"
    go_on(spark, folder, views)
    for name, view in views.items():
        last = view.history()[-1]
        assert (last.generation, last.epoch) == (1, made["views"][name][0] + 1), last.sentence
        if long or name in VERIFIED:
            assert view.verify().ok, name


def go_on(spark: SparkSession, folder: Path, views: dict[str, deltafold.api.View]) -> None:
    """Change every source, and refresh every view."""
    table = f"delta.`{folder / 'sales'}`"
    shop.insert(spark, folder / "sales", ["(7, 'n2', 'tea', 5.5, date'2024-05-05')"])
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    shop.insert(spark, folder / "links", ["(5, 6)", "(3, 4)"])
    shop.land(folder, {"2024-05-03": "4,n2,7\n"})
    shutil.rmtree(folder / "visits" / "day=2024-05-01")
    views["visitors"].warehouse.land("visits")
    for view in views.values():
        view.refresh()
