"""Send the start and the end of each refresh as OpenLineage events, if OpenLineage is configured.

The configuration is OpenLineage's own: OPENLINEAGE_URL, OPENLINEAGE_CONFIG, variables OPENLINEAGE__TRANSPORT…, or
openlineage.yml in the current folder or in ~/.openlineage. Its client (the extra `openlineage`) is imported only then.

| in OpenLineage | here |
| --- | --- |
| job | `<warehouse>.<view>`, or `<warehouse>` for the refresh of several views as a pipeline (the name of its folder, |
| | or of the one above a folder `warehouse`), in $OPENLINEAGE_NAMESPACE, `deltafold` by default |
| run | one refresh: START, then COMPLETE, or FAIL (ABORT for an interrupt) with the message that logs have, which |
| | shows no value of a row; a pipeline fails if one of its views does |
| inputs | tables and views that the query reads: location, schema, and the version that was read |
| output | the view's folder, the same through rebuilds: schema, column lineage, `generation.epoch`, rows written; as |
| | symlinks the present table and the SQL name |
| parent | the run of the pipeline, or of the view that refreshed this one first, or else $OPENLINEAGE_PARENT_ID |
| | (`namespace/job/run`); root likewise, by $OPENLINEAGE_ROOT_PARENT_ID: schedulers set both |

No event makes a refresh fail: what cannot be sent is one warning for each refresh, of a view or of a pipeline; a
line of the log where warnings are errors.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from deltafold.algebra.errors import DeltafoldError, DeltafoldWarning
from deltafold.algebra.results.address import Address
from deltafold.algebra.results.pipeline_report import PipelineReport
from deltafold.algebra.results.report import NOTHING_TO_DO, Report
from deltafold.algebra.secrets import mask_secrets
from deltafold.lake.remote.remote_path import Place
from deltafold.telemetry import log

DISABLED, CONFIG, URL = "OPENLINEAGE_DISABLED", "OPENLINEAGE_CONFIG", "OPENLINEAGE_URL"
TRANSPORT = "OPENLINEAGE__TRANSPORT"
NAMESPACE, PARENT, ROOT = "OPENLINEAGE_NAMESPACE", "OPENLINEAGE_PARENT_ID", "OPENLINEAGE_ROOT_PARENT_ID"
FILE = "openlineage.yml"
PRODUCER = "urn:deltafold"
WAREHOUSE = "warehouse"
OBJECT_STORES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    "gs": "gs",
    **dict.fromkeys(("abfs", "abfss"), "abfss"),
    **dict.fromkeys(("wasb", "wasbs"), "wasbs"),
}
"""The scheme of a namespace by that of a location; names in it begin without a slash."""
CLOSE_SECONDS = 10.0  # for a transport that sends in the background

Columns = Sequence[tuple[str, str]]
"""(name, type) of each."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table or view that a query reads; view: its name, if it is one."""

    location: str
    columns: Columns = ()
    view: str | None = None


@dataclass(frozen=True, kw_only=True)
class Output:
    """A view that a refresh writes.

    address: of the answer after the refresh; lineage: the (source, column) pairs that each column is computed from, as
    far as known.
    """

    location: str
    address: Callable[[], Address]
    columns: Columns = ()
    lineage: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict[str, Sequence[tuple[str, str]]])


@dataclass(frozen=True, kw_only=True)
class Job:
    """A refresh, as it is known before it runs.

    query: None for a function; inputs: by source; output: None for a pipeline.
    """

    name: str
    query: str | None = None
    inputs: Mapping[str, Table] = field(default_factory=dict[str, Table])
    output: Output | None = None


@dataclass(frozen=True)
class RunName:
    """A run as the events of others name it."""

    namespace: str
    job: str
    run: str

    @classmethod
    def of(cls, variable: str) -> RunName | None:
        """Return the run that a variable names as `namespace/job/run`; raises ValueError for anything else."""
        if not (text := os.environ.get(variable)):
            return None
        parts = text.rsplit("/", 2)
        if len(parts) < 3:
            raise ValueError(f"{variable} is not namespace/job/run")
        return cls(*parts)


@dataclass(frozen=True)
class Ancestors:
    """What a run is a part of."""

    parent: RunName
    root: RunName


@dataclass
class Run:
    """A run in progress.

    sender: None if lineage is off; report: the result, which the caller sets.
    """

    name: RunName
    sender: Sender | None = None
    ancestors: Ancestors | None = None
    report: Report | PipelineReport | None = None

    @property
    def inside(self) -> Ancestors:
        """What a run in this one is a part of."""
        return Ancestors(parent=self.name, root=self.ancestors.root if self.ancestors else self.name)


NO_RUN = RunName("", "", "")


def is_configured() -> bool:
    """Return whether OpenLineage's own configuration asks for events."""
    if os.environ.get(DISABLED, "").strip().lower() == "true":
        return False
    if any(name in (CONFIG, URL) or name.startswith(TRANSPORT) for name, value in os.environ.items() if value):
        return True
    # Path's own methods raise where there is no home, or the current folder is gone
    return any(os.path.isfile(file) for file in (FILE, os.path.expanduser(f"~/.openlineage/{FILE}")))  # noqa: PTH111, PTH113


@contextmanager
def open_run(
    describe: Callable[[], Job],
    within: Run | None = None,
    below: Callable[[str], Job | None] = lambda _: None,
) -> Generator[Run]:
    """Send the start of a run, and its end after the block, which sets its report.

    describe: the job; within: the pipeline that it is a part of, in which the views below have runs of their own;
    below: otherwise, the job of a view that is refreshed first, by its name.
    """
    if not is_configured():
        yield Run(NO_RUN)
        return
    if within is not None and within.sender is not None:
        with within.sender.run(describe(), within.inside) as run:
            yield run
        return
    with Sender() as sender, sender.run(describe(), sender.ancestors, below) as run:
        yield run


class Sender:
    """Sends the events of one operation, and none after one could not be sent."""

    ancestors: Ancestors | None = None

    def __init__(self) -> None:
        self._client: Any = None
        self._failed = False
        self._turn = Lock()  # the views of a pipeline are refreshed in several threads

    def __enter__(self) -> Sender:
        with self._warning():
            self._client = import_module("openlineage.client").OpenLineageClient()
            if not self._client.config.transport:
                raise ValueError("no transport is configured")  # the client would print the events
            if parent := RunName.of(PARENT):
                self.ancestors = Ancestors(parent=parent, root=RunName.of(ROOT) or parent)
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            with self._warning():
                if not self._client.close(CLOSE_SECONDS):
                    raise TimeoutError(f"some were not sent within {CLOSE_SECONDS:.0f} s")

    @contextmanager
    def run(
        self, job: Job, ancestors: Ancestors | None, below: Callable[[str], Job | None] = lambda _: None
    ) -> Generator[Run]:
        """Send the start of a run, and its end after the block."""
        run = self._begin(job, ancestors)
        self._send("START", run, job)
        try:
            yield run
        except BaseException as error:
            self._send("FAIL" if isinstance(error, Exception) else "ABORT", run, job, fault=message_of(error))
            raise
        with self._warning():
            for changed in _find_changed(run.report):
                if (other := below(changed.view)) is not None:
                    self._send_finished(changed, self._begin(other, run.inside), other)
        fault = _fault(run.report)
        self._send("FAIL" if fault else "COMPLETE", run, job, fault=fault)

    def _begin(self, job: Job, ancestors: Ancestors | None) -> Run:
        namespace = os.environ.get(NAMESPACE) or "deltafold"
        number = ""
        with self._turn, self._warning():
            if not self._failed:
                number = str(import_module("openlineage.client.uuid").generate_new_uuid())
        return Run(RunName(namespace, job.name, number), self, ancestors)

    def _send_finished(self, report: Report, run: Run, job: Job) -> None:
        """Send the events of a refresh that another one made, at the times when they happened."""
        run.report = report
        ended = datetime.fromisoformat(report.finished)
        self._send("START", run, job, time=ended - timedelta(seconds=report.seconds))
        self._send("COMPLETE", run, job, time=ended)

    def _send(self, state: str, run: Run, job: Job, *, fault: str = "", time: datetime | None = None) -> None:
        with self._turn, self._warning():
            if not self._failed:
                self._client.emit(make_event(state, run, job, fault, time or datetime.now(UTC)))

    @contextmanager
    def _warning(self) -> Generator[None]:
        """Warn of any error of the body, since lineage must not fail the refresh itself."""
        try:
            yield
        except ModuleNotFoundError as error:
            self._fail(f"{error.name} is not installed", "Run pip install 'deltafold[openlineage]'")
        except Exception as error:
            reason = mask_secrets(str(error)).strip().split("\n")[0].rstrip(".")
            self._fail(f"{type(error).__name__}: {reason}", "Correct OpenLineage's configuration")

    def _fail(self, cause: str, fix: str) -> None:
        if not self._failed:
            self._failed = True
            message = f"OpenLineage: the events of this refresh are not sent: {cause}. {fix}, or set {DISABLED}=true."
            try:
                warnings.warn(message, DeltafoldWarning, stacklevel=2)
            except DeltafoldWarning:  # where warnings are errors
                log(logging.WARNING, message, {})


def _find_changed(report: Report | PipelineReport | None) -> list[Report]:
    """Return the reports of the views below that a refresh changed, the lowest first, each once."""
    if not isinstance(report, Report):
        return []
    changed = {each.view: each for below in report.below for each in (*_find_changed(below), below)}
    return [each for each in changed.values() if each.verdict != NOTHING_TO_DO]


def _fault(report: Report | PipelineReport | None) -> str:
    """Return which datasets of a pipeline failed; empty if none did."""
    if not isinstance(report, PipelineReport) or report.ok:
        return ""
    failed = [dataset.name for dataset in report.datasets if not dataset.ok]
    return f"{len(failed)} of {len(report.datasets)} datasets failed or were skipped: {', '.join(failed)}"


def make_event(state: str, run: Run, job: Job, fault: str, time: datetime) -> Any:
    """Return an event of OpenLineage's client; fault: why the run failed."""
    event, facets = import_module("openlineage.client.event_v2"), import_module("openlineage.client.facet_v2")
    report = run.report if isinstance(run.report, Report) else None
    of_run = dict[str, Any]()
    if fault:
        of_run["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(
            message=fault, programmingLanguage="PYTHON"
        )
    if run.ancestors is not None:
        of_run["parent"] = _parent(facets.parent_run, run.ancestors)
    of_job = {
        "jobType": facets.job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="DELTAFOLD", jobType="PIPELINE" if job.output is None else "VIEW"
        ),
    }
    if job.query is not None:
        of_job["sql"] = facets.sql_job.SQLJobFacet(query=job.query)
    return event.RunEvent(
        eventType=event.RunState[state],
        eventTime=time.isoformat(),
        run=event.Run(runId=run.name.run, facets=of_run),
        job=event.Job(namespace=run.name.namespace, name=job.name, facets=of_job),
        inputs=[_input(event, facets, source, table, report) for source, table in job.inputs.items()],
        outputs=[] if job.output is None else [_output(event, facets, job, job.output, report)],
        producer=PRODUCER,
    )


def _parent(made: Any, ancestors: Ancestors) -> Any:
    parent, root = ancestors.parent, ancestors.root
    return made.ParentRunFacet(
        run=made.Run(runId=parent.run),
        job=made.Job(namespace=parent.namespace, name=parent.job),
        root=made.Root(run=made.RootRun(runId=root.run), job=made.RootJob(namespace=root.namespace, name=root.job)),
    )


def _input(event: Any, facets: Any, source: str, table: Table, report: Report | None) -> Any:
    namespace, name = name_dataset(table.location)
    shown = _schema(facets, table.columns)
    if version := _version_read(source, table, report):
        shown["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version)
    return event.InputDataset(namespace=namespace, name=name, facets=shown)


def _version_read(source: str, table: Table, report: Report | None) -> str:
    """Return the version of a source after a refresh: of a view its generation and epoch, if they are in the report."""
    if report is None:
        return ""
    if table.view is not None:
        for below in report.below:
            if below.view == table.view:
                return f"{below.generation}.{below.epoch}"
        return ""
    return str(report.versions[source][1]) if source in report.versions else ""


def _output(event: Any, facets: Any, job: Job, output: Output, report: Report | None) -> Any:
    namespace, name = name_dataset(output.location)
    shown = _schema(facets, output.columns)
    if fields := _column_lineage(facets, job.inputs, output.lineage):
        shown["columnLineage"] = facets.column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)
    if report is None:
        return event.OutputDataset(namespace=namespace, name=name, facets=shown)
    version = f"{report.generation}.{report.epoch}"
    shown["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version)
    address = output.address()
    symlinks = facets.symlinks_dataset
    table_namespace, table = name_dataset(address.path)
    links = [symlinks.Identifier(namespace=table_namespace, name=table, type="LOCATION")]
    if address.publish_as:
        links.append(symlinks.Identifier(namespace="spark", name=address.publish_as, type="TABLE"))
    shown["symlinks"] = symlinks.SymlinksDatasetFacet(identifiers=links)
    written = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=report.rows_written)
    return event.OutputDataset(namespace=namespace, name=name, facets=shown, outputFacets={"outputStatistics": written})


def _schema(facets: Any, columns: Columns) -> dict[str, Any]:
    if not columns:
        return {}
    made = facets.schema_dataset
    fields = [made.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in columns]
    return {"schema": made.SchemaDatasetFacet(fields=fields)}


def _column_lineage(
    facets: Any, inputs: Mapping[str, Table], lineage: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, Any]:
    """Return the input fields of each column whose lineage is known."""
    made = facets.column_lineage_dataset
    names = {source: name_dataset(table.location) for source, table in inputs.items()}
    return {
        column: made.Fields(
            inputFields=[
                made.InputField(namespace=names[source][0], name=names[source][1], field=origin)
                for source, origin in origins
                if source in names
            ]
        )
        for column, origins in lineage.items()
    }


def name_pipeline(root: Place) -> str:
    """Return the name of a warehouse: that of its folder, or of the one above if the folder is just `warehouse`."""
    return (root.parent.name if root.name == WAREHOUSE else "") or root.name


def name_dataset(location: str) -> tuple[str, str]:
    """Return namespace and name of a location, as OpenLineage's specification names it."""
    parts = urlsplit(mask_secrets(location))
    if parts.scheme in ("", "file"):
        return "file", (parts.path if parts.scheme else location).rstrip("/")
    if parts.scheme in OBJECT_STORES:
        return f"{OBJECT_STORES[parts.scheme]}://{parts.netloc}", parts.path.strip("/")
    return f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")


def message_of(error: BaseException) -> str:
    """Return the message of an error as logs have it: without values of rows, other errors by their class."""
    return mask_secrets(error.logged) if isinstance(error, DeltafoldError) else type(error).__name__
