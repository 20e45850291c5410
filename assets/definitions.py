"""This repository's own code location, written as in any project that uses Deltafold: `make ui` shows it.

In a project of your own, put what you need of it beside your assets; docs/how-to/dagster.md has the parts one by one.
Nothing is started here: loading reads texts only, so it is quick, and needs neither Spark nor Java.
"""

import dagster as dg

import deltafold.dagster as df


class ByPipeline(df.DeltafoldTranslator):
    """Names the assets. Override what your project has otherwise: keys, groups, owners, tags, automation conditions."""

    def get_asset_spec(self, pipeline):
        """Return the asset of a dataset. Here each pipeline is a group, unless its pipeline.yaml has another one."""
        spec = super().get_asset_spec(pipeline)
        # One of several datasets has the name of their pipeline as `project`.
        return spec.replace_attributes(group_name=spec.group_name or getattr(pipeline, "project", pipeline.name))

    def get_landing_spec(self, pipeline, source):
        """Return the asset of a table in which input files are landed, by partition if the pipeline declares some."""
        spec = super().get_landing_spec(pipeline, source)
        return spec.replace_attributes(group_name=pipeline.declaration.group or pipeline.name)

    def get_project_landing_spec(self, project, source):
        """Return the asset of a table in which a pipeline of several datasets lands input files."""
        return super().get_project_landing_spec(project, source).replace_attributes(group_name=project)


translator = ByPipeline()

# Every folder with a pipeline.yaml below ./pipelines (or below $DELTAFOLD_PIPELINES) is a dataset, with a check that it
# equals its query. Each is a step of its own here, so that two can be refreshed at once, and an invalid one shows its
# error while the others load. df.deltafold_assets() makes one step of all, of which you materialise any subset.
datasets = df.pipeline_steps(translator=translator)

# Their sources: what they land from input files or streams, and Delta tables that somebody else writes. A source that
# an asset of yours writes needs neither: the translator's `source_assets={"orders": "raw/orders"}` names that asset.
landings = df.landing_assets(translator=translator, skip_invalid=True)
tables = df.source_tables(*datasets)

defs = dg.Definitions(
    assets=[*landings, *tables, *datasets],
    # What starts runs. Leave out what you have otherwise, such as automation conditions: no asset needs it.
    jobs=df.pipeline_jobs(*datasets),  # for each: NAME_update, NAME_refresh, check_NAME, maintain_NAME
    schedules=df.pipeline_schedules(*datasets),  # those that a pipeline.yaml declares
    sensors=df.pipeline_sensors(*datasets),  # new files, new versions of tables, datasets behind their sources
    # Where Spark runs: in the process of a run, or, with DELTAFOLD_SUBMIT, by spark-submit (docs/how-to/platforms.md).
    resources={"deltafold": df.spark_resource()},
    # One process, and so one Spark, for all the steps of a run.
    executor=dg.in_process_executor,
)
