"""A project of a user's, whose assets stand before and after maintained ones: what test_theirs shows in a browser."""

import os

import dagster as dg

import deltafold.dagster as df

SHOPS = os.environ["SHOPS"]  # the Delta table that an asset of theirs writes


@dg.asset(key=["raw", "shops"], group_name="raw", owners=["team:shops"])
def shops(deltafold: df.SparkResource) -> None:
    """The towns of shops."""
    rows = deltafold.spark_session.createDataFrame([("a", "Ulm"), ("b", "Bonn")], "shop STRING, town STRING")
    rows.write.format("delta").mode("overwrite").save(SHOPS)


class Ours(df.DeltafoldTranslator):
    """Gives every dataset an owner, and all assets a group."""

    def get_asset_spec(self, pipeline):
        return super().get_asset_spec(pipeline).replace_attributes(group_name="marts", owners=["team:finance"])

    def get_landing_spec(self, pipeline, source):
        return super().get_landing_spec(pipeline, source).replace_attributes(group_name="marts")


translator = Ours(source_assets={"shops": "raw/shops"}, key_prefix=["marts"])
datasets = df.deltafold_assets(translator=translator)
landings = df.landing_assets(translator=translator)


@dg.asset(deps=[["marts", "towns"]], group_name="reports")
def letter() -> None:
    """Downstream of a dataset: runs once its check has passed."""


defs = dg.Definitions(
    assets=[shops, *landings, datasets, letter],
    resources={"deltafold": df.SparkResource()},
)
