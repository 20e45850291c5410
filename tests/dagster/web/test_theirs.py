"""A project of a user's in a browser: one graph, a subset and a backfill by click, a failed check, column lineage.

With DELTAFOLD_DOCS=1 its screenshots are those of docs/how-to/dagster.md (`make screenshots`).
"""

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import expect
from pyspark.sql import SparkSession

from deltafold.pipelines import catalogue
from deltafold.spark.cache import cache_folder
from tests.dagster import sales
from tests.dagster.web.browser import chromium, person
from tests.dagster.web.server import PROJECT, Server, dagster_dev
from tests.night import night
from tests.pipelines.declared import write

DAYS = ["2013-01-01", "2013-01-02"]
HIDDEN = 424242
TOWNS = "SELECT town, sum(total) AS total FROM sales JOIN shops USING (shop) GROUP BY town"


@night
def test_maintained_datasets_stand_among_a_users_assets(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chromium() is None:
        pytest.skip("Chromium is not installed (make browser)")
    monkeypatch.setenv("SHOPS", str(tmp_path / "lake" / "shops"))
    low = sales.declare(tmp_path)
    write(
        tmp_path, "towns", f"sources: {{sales: {{view: sales}}, shops: {{delta: {tmp_path}/lake/shops}}}}\n", sql=TOWNS
    )
    write(tmp_path, "other", "sources: {sales: {view: sales}}\n", sql="SELECT count(*) AS n FROM sales")
    for number, day in enumerate(DAYS):
        sales.drop(low, day, [(number, "a", 10), (10 + number, "b", 7)])
    pictures = PROJECT / "docs" / "screenshots" if os.environ.get("DELTAFOLD_DOCS") else cache_folder("screenshots")
    location = Path(__file__).with_name("theirs.py")
    with dagster_dev(tmp_path, tmp_path, location) as server, person(server, pictures) as someone:
        someone.page.set_viewport_size({"width": 1400, "height": 900})
        someone.materialises("raw/shops")
        ended(server, 1)
        someone.backfills("marts/sales/landed/sales", f"[{DAYS[0]}...{DAYS[1]}]")
        ended(server, 2)
        someone.sees_partitions("marts/sales/landed/sales", materialized=2, failed=0)
        someone.materialises("marts/towns", missing=True)
        ended(server, 3)
        assert server.runs()[-1]["assetSelection"] == [{"path": ["marts", "towns"]}]
        someone.sees_metadata("marts/towns", {"verdict": "applied", "epoch": "1", "column lineage": "raw/shops.town"})
        computed_from = someone.page.get_by_role("cell", name="marts/sales.total", exact=True)
        expect(computed_from).to_be_visible()
        computed_from.scroll_into_view_if_needed()
        someone.photographs("columns")
        someone.sees_lineage("marts/towns", "shops", "sales", "towns", "letter")
        _, towns = catalogue.open(catalogue.load("towns", tmp_path), spark)
        assert sorted(map(tuple, towns.answer().collect())) == [("Bonn", 14), ("Ulm", 20)]
        spark.sql(f"UPDATE delta.`{towns.path}` SET total = {HIDDEN} WHERE town = 'Ulm'")
        someone.checks("marts/towns")
        ended(server, 4, "FAILURE")
        someone.sees_failed_check("marts/towns", str(HIDDEN), "missing rows", "extra rows")


def ended(server: Server, count: int, last: str = "SUCCESS") -> None:
    """Wait until so many runs have ended, the last as expected and all others well."""

    def ready() -> bool:
        found = [run["status"] for run in server.runs()]
        assert not {"FAILURE", "CANCELED"} & set(found[: count - 1]), json.dumps(server.runs(), indent=1)
        return len(found) == count and found[-1] in ("SUCCESS", "FAILURE")

    server.wait(f"{count} runs have ended", ready, 400)
    assert server.runs()[-1]["status"] == last, server.log.read_text()[-3000:]
