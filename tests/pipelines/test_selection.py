"""The grammar of selections, over the nodes of a small project as dbt names them."""

from __future__ import annotations

import pytest

from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.selection import Kind, Node, Nodes


def node(id: str, *reads: str, kind: Kind = "dataset", tags: tuple[str, ...] = (), kept: bool = True) -> Node:
    """A node `layer.name`; staging is not kept."""
    layer, _, name = id.partition(".")
    return Node(
        id=id,
        qualified=("shop", layer, *name.split("/")),
        kind=kind,
        tags=tags,
        path=f"models/{layer}/{name}.sql",
        reads=reads,
        dataset=name if kind == "dataset" and kept else "",
        config={"materialized": "table" if kept else "view", "meta": {"teams": [layer], "pii": name == "visits"}},
        resource_type={"dataset": "model", "source": "source", "other": "seed"}[kind],
        package="shop",
    )


NODES = Nodes.of(
    [
        node("raw.orders", kind="source"),
        node("raw.events", kind="source"),
        node("staging.stg_orders", "raw.orders", kept=False),
        node("seeds.regions", kind="other"),
        node("marts.fct_orders", "staging.stg_orders", tags=("nightly", "core")),
        node("marts.dim_stores", "seeds.regions", tags=("core",)),
        node("marts.kpis", "marts.fct_orders", "marts.dim_stores", tags=("nightly",)),
        node("marts.report/v1", "marts.kpis"),
        node("marts.report/v2", "marts.kpis"),
        node("web.visits", "raw.events"),
        Node(id="unique", qualified=("shop", "unique_kpis"), kind="test", reads=("marts.kpis",), generic_test="unique"),
        Node(id="own", qualified=("shop", "no_loss"), kind="test", reads=("marts.kpis",), tags=("slow",)),
    ]
)
MARTS = {"fct_orders", "dim_stores", "kpis", "report/v1", "report/v2"}


@pytest.mark.parametrize(
    ("select", "exclude", "expected"),
    [
        ([], ["web"], MARTS),
        (["kpis"], [], {"kpis"}),
        (["KPIS"], [], {"kpis"}),
        (["+kpis"], [], {"kpis", "fct_orders", "dim_stores"}),
        (["1+report.v1"], [], {"kpis", "report/v1"}),
        (["stg_orders+"], [], MARTS - {"dim_stores"}),
        (["stg_orders+1"], [], {"fct_orders"}),
        (["1+kpis+1"], [], MARTS),
        (["@dim_stores"], [], MARTS),
        (["source:raw.orders+2"], [], {"fct_orders"}),
        (["source:raw+"], [], MARTS - {"dim_stores"} | {"visits"}),
        (["regions+"], [], MARTS - {"fct_orders"}),
        (["report"], [], {"report/v1", "report/v2"}),
        (["report_v2", "report.v1"], [], {"report/v1", "report/v2"}),
        (["marts", "web"], [], MARTS | {"visits"}),
        (["shop.marts.fct_orders"], [], {"fct_orders"}),
        (["marts.*_orders"], [], {"fct_orders"}),
        (["tag:nightly"], [], {"fct_orders", "kpis"}),
        (["tag:nightly,tag:core visits"], [], {"fct_orders", "visits"}),
        (["path:models/web"], [], {"visits"}),
        (["models/marts/dim_*.sql"], [], {"dim_stores"}),
        (["models/**/visits.sql"], [], {"visits"}),
        (["+kpis"], ["kpis fct_orders"], {"dim_stores"}),
        (["path:models"], ["tag:core+"], {"visits"}),
        (["config.materialized:VIEW+1"], [], {"fct_orders"}),
        (["config.tags:core"], ["config.tags:night*"], {"dim_stores"}),
        (["config.meta.teams:web config.meta.pii:true"], [], {"visits"}),
        (["resource_type:seed+1"], [], {"dim_stores"}),
        (["resource_type:model,file:visits", "file:dim_*.sql"], [], {"visits", "dim_stores"}),
        (["package:shop"], ["resource_type:source+"], {"dim_stores"}),
        (["kpis"], ["test_type:generic"], {"kpis"}),
        (["kpis"], ["no_loss", "test_name:uniq*"], {"kpis"}),
    ],
)
def test_what_is_selected(select: list[str], exclude: list[str], expected: set[str]) -> None:
    assert set(NODES.select(select, exclude)) == expected


@pytest.mark.parametrize(
    ("select", "exclude", "message"),
    [
        ("kpi", "", r"--select kpi: it matches no dataset\. Did you mean `kpis`\?"),
        ("", "kpi", r"--exclude kpi: it matches no dataset\. Did you mean `kpis`\?"),
        ("kpis tag:nightl", "", r"tag:nightl: it matches no dataset\. Did you mean `nightly`\?"),
        ("source:raw.order+", "", r"Did you mean `raw\.orders`\?"),
        ("state:modified", "", r"`state` selects nothing here: no earlier manifest is compared\. Known are fqn, tag"),
        ("state:modified", "", r"package, group, test_type, test_name and config\.KEY\."),
        ("test_type:data", "", r"these are tests\. Select what they test; exclude tests"),
        ("", "test_type:unit", r"it matches no dataset\. Known are data, generic, singular|Did you mean"),
        ("taq:core", "", r"unknown method `taq`\. Did you mean `tag`"),
        ("confg.meta:core", "", r"unknown method `confg\.meta`\. .*config\.KEY"),
        (" ", "", r"--select: it is empty\. Leave it out, or name datasets"),
        ("source:raw", "", r"events and another one are not kept as a table\. .*reads events: source:raw\.events\+"),
        ("config:table", "", r"it has no key\. Write config\.KEY:VALUE"),
        ("config.materialized:tabel", "", r"it matches no dataset\. Did you mean `table`"),
        ("config.owner:shop", "", r"No dataset has a value of `config\.owner`"),
        ("resource_type:models", "", r"Did you mean `model`"),
        ("kpis,,tag:core", "", "it is not a selection"),
        ("@kpis+1", "", "it is not a selection"),
        (
            "stg_orders",
            "",
            r"stg_orders is not kept as a table\. Select what reads stg_orders: stg_orders\+",
        ),
        ("kpis", "kpis", "--select kpis: it selects no dataset: everything is excluded"),
        ("", "shop source:raw", "--exclude shop source:raw: it selects no dataset: everything is excluded"),
        ("", "tag:nightly,web", r"--exclude tag:nightly,web: no dataset matches all parts of it"),
    ],
)
def test_refusals(select: str, exclude: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        NODES.select([select] if select else [], [exclude] if exclude else [])


def test_tests_are_excluded_by_what_dbt_excludes_them_by() -> None:
    for text, ids in (
        ("test_type:data", {"own", "unique"}), ("test_type:singular", {"own"}), ("test_name:unique", {"unique"}),
        ("unique_kpis", {"unique"}), ("tag:slow", {"own"}), ("resource_type:test", {"own", "unique"}),
    ):  # fmt: skip
        assert NODES.find_excluded([text]) & {"own", "unique"} == ids, text
    assert NODES.find_excluded(["kpis"]) >= {"own", "unique"} and not NODES.find_excluded([])
    assert NODES.find_excluded(["kpis,test_type:generic"]) == {"unique"}
