"""`python -m benchmarks EXPERIMENT …` (group-by and others, see --help): print a table, write JSON."""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks import (
    click,
    clusters,
    file_lists,
    group_by,
    iterations,
    join_group_by,
    large_state,
    loops,
    many_views,
    memory,
    shop,
    tpcdi,
    tpch,
    workers,
)

SIZES = [1_000_000, 10_000_000, 100_000_000]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    experiments = parser.add_subparsers(dest="experiment")
    for name, sizes in (("group-by", SIZES), ("join-group-by", join_group_by.SIZES)):
        experiment = experiments.add_parser(name)
        experiment.add_argument("--rows", type=int, nargs="+", default=sizes, help="sizes of a source, smallest first")
    experiment = experiments.add_parser("large-state")
    experiment.add_argument("--keys", type=int, nargs="+", default=large_state.SIZES, help="groups of the state")
    experiment.add_argument("--rounds", type=int, default=large_state.ROUNDS, help="of increments, the first warms up")
    experiment = experiments.add_parser("loops")
    experiment.add_argument("--edges", type=int, nargs="+", default=loops.SIZES, help="sizes of a graph")
    experiment = experiments.add_parser("file-lists")
    experiment.add_argument("--files", type=int, nargs="+", default=file_lists.SIZES, help="of a table")
    experiment = experiments.add_parser("clusters")
    experiment.add_argument("--points", type=int, nargs="+", default=clusters.SIZES, help="numbers of points")
    experiment = experiments.add_parser("iterations")
    edges = [edges for _, edges, _ in iterations.GRAPHS]
    experiment.add_argument("--edges", type=int, nargs="+", default=edges, choices=edges, help="of PageRank's graphs")
    experiments.add_parser("click")
    experiment = experiments.add_parser("workers")
    experiment.add_argument("--rows", type=int, nargs="+", default=workers.SIZES, help="of a source, smallest first")
    experiment = experiments.add_parser("tpch")
    experiment.add_argument("--scale", type=float, nargs="+", default=[1.0, 10.0], help="scale factors")
    experiment.add_argument("--query", type=int, nargs="+", default=list(range(1, 23)), help="numbers of queries")
    experiment.add_argument("--policy", choices=("auto", "incremental"), default="auto", help="of the views")
    experiment.add_argument("--rounds", type=int, default=tpch.ROUNDS, help="of refresh functions, the last counts")
    experiment.add_argument("--verify", action=argparse.BooleanOptionalAction, default=True, help="compare all answers")
    add_pipelines(experiments)
    experiment = experiments.add_parser("memory")
    experiment.add_argument("--rows", type=int, default=80_000_000, help="of about 150 bytes each")
    return parser.parse_args()


def add_pipelines(experiments: Any) -> None:
    """Add the experiments with many datasets."""
    experiment = experiments.add_parser("shop")
    experiment.add_argument("--rows", type=int, nargs="+", default=shop.SIZES, help="numbers of orders")
    experiment.add_argument("--sources", nargs="+", default=list(shop.KINDS), choices=shop.KINDS, help="kinds of table")
    experiment.add_argument("--policy", choices=("auto", "incremental"), default="incremental", help="of the one run")
    experiment.add_argument("--verify", action=argparse.BooleanOptionalAction, default=True, help="compare all answers")
    experiment = experiments.add_parser("many-views")
    experiment.add_argument("--rows", type=int, nargs="+", default=many_views.SIZES, help="of the large table")
    experiment.add_argument("--datasets", type=int, nargs="+", default=many_views.NUMBERS, help="numbers of datasets")
    experiment.add_argument("--shapes", nargs="+", default=["flat"], choices=many_views.SHAPES, help="of the graph")
    experiment.add_argument(
        "--sources", nargs="+", default=["copy on write"], choices=shop.KINDS, help="kinds of table"
    )
    experiment.add_argument("--rounds", type=int, default=many_views.ROUNDS, help="of changes, one more warms up")
    experiment.add_argument("--verify", action=argparse.BooleanOptionalAction, default=True, help="compare all answers")
    experiment = experiments.add_parser("tpcdi")
    experiment.add_argument("--scale", type=float, nargs="+", default=tpcdi.SCALES, help="scale factors")
    experiment.add_argument("--policy", choices=("auto", "incremental"), default="auto", help="of the one run")
    experiment.add_argument("--verify", action=argparse.BooleanOptionalAction, default=True, help="compare all answers")


def main() -> None:
    chosen = parse()
    match chosen.experiment:
        case "memory":
            memory.run(chosen.rows)
        case "shop":
            shop.run(chosen.rows, chosen.sources, chosen.policy, verify=chosen.verify)
        case "many-views":
            graph = chosen.datasets, chosen.shapes
            many_views.run(chosen.rows, *graph, chosen.sources, chosen.rounds, verify=chosen.verify)
        case "tpcdi":
            tpcdi.run(chosen.scale, chosen.policy, verify=chosen.verify)
        case "tpch":
            tpch.run(chosen.scale, chosen.query, chosen.policy, chosen.rounds, verify=chosen.verify)
        case "large-state":
            large_state.run(chosen.keys, chosen.rounds)
        case "click":
            click.run()
        case None:
            group_by.run(SIZES)
            join_group_by.run(join_group_by.SIZES)
            large_state.run(large_state.SIZES)
        case _:
            of_sizes(chosen)


def of_sizes(chosen: argparse.Namespace) -> None:
    """Run an experiment whose only option is its sizes."""
    match chosen.experiment:
        case "loops":
            loops.run(chosen.edges)
        case "iterations":
            iterations.run(chosen.edges)
        case "file-lists":
            file_lists.run(chosen.files)
        case "workers":
            workers.run(chosen.rows)
        case "clusters":
            clusters.run(chosen.points)
        case "join-group-by":
            join_group_by.run(chosen.rows)
        case _:
            group_by.run(chosen.rows)


if __name__ == "__main__":
    main()
