"""Publish a view's answer as a plain Delta table, which any engine can read: the folder `answer` of the view (D-193).

The tables that a refresh maintains have columns of its own, deletion vectors and partitions by hash. The plain table
has the columns of the answer alone, and no feature that the names and types of these do not need. It is rewritten as a
whole, in one commit, after an epoch is finished and before readers are pointed to it: an answer of up to
`Tuning.plain_bytes` bytes unless the view is declared `fast`, a larger one if it is declared `plain`. What somebody
else writes to it is replaced by the next refresh.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import DeltafoldError, DeltafoldWarning
from deltafold.algebra.results.address import Address
from deltafold.algebra.results.formats import format_bytes
from deltafold.algebra.sqltext import quoted
from deltafold.lake.protocol import Table
from deltafold.lake.records import records_at
from deltafold.spark.java_errors import explain_errors
from deltafold.spark.job_stats import Cost, Measure
from deltafold.store.view_store import Store
from deltafold.telemetry import log_work

PLAIN = "answer"
PHASE = "write the plain table"


@dataclass(frozen=True)
class PlainAnswer:
    """The plain table of one view; the caller has the view's lock.

    costs: of each time that it was written.
    """

    store: Store
    costs: list[Cost] = field(default_factory=list[Cost])

    @property
    def table(self) -> Table:
        """The table, which may not exist."""
        return self.store.table_at(PLAIN)

    def publish(self, address: Address, before: Address | None, *, is_same: bool) -> Address:
        """Return the address of the table for readers; if that is the plain table, bring it up to date.

        address: of the maintained answer; before: the one that readers are pointed to now; is_same: whether that is of
        the same answer.
        """
        declared = self.store.publication
        if before is not None and is_same and before.publication == declared:
            if before.plain and self.table.version() == before.version:
                return address.follow(before)
            if not before.plain and before.is_of(address.generation, address.epoch):
                return address.follow(before)
        source = self.store.table_at(address.table)
        address = replace(address, publication=declared)
        if not self._is_wanted(source, before):
            return replace(address, reader_features=source.reader_features())
        table = self._write(source, address)
        features = table.reader_features()
        plain = replace(address, table=PLAIN, version=table.version(), plain=True, reader_features=features)
        return address.follow(plain)

    def retire(self, address: Address) -> None:
        """Remove the plain table if readers are pointed to another one: nobody brings it up to date any more."""
        plain = records_at(self.store.folder / PLAIN)
        if not address.plain and plain.exists():
            plain.remove()

    def _is_wanted(self, source: Table, before: Address | None) -> bool:
        if self.store.publish in ("plain", "fast"):
            return self.store.publish == "plain"
        was_plain = before is not None and before.plain
        size, limit = source.size()[1], self.store.tuning.plain_bytes
        is_small = size < (2 * limit if was_plain else limit)  # so that it does not alternate
        if was_plain and not is_small:
            warnings.warn(
                f"view {self.store.view}: its answer has grown to {format_bytes(size)} and is no longer published as a "
                f"plain table, so the folder {PLAIN} is gone. Readers need the features that `deltafold path` shows; "
                "or declare publish: plain, which rewrites all of it in each refresh.",
                DeltafoldWarning,
                stacklevel=2,
            )
        return is_small

    def _write(self, source: Table, address: Address) -> Table:
        """Write all rows of the maintained answer, in one commit."""
        version = source.version() if address.version is None else address.version
        assert version is not None
        table, epoch = self.table, {"view": address.view, "generation": address.generation, "epoch": address.epoch}
        measure, title = Measure(self.store.spark), f"{address.view} epoch {address.epoch}: {PHASE}"
        try:
            with (
                log_work("publish", {**epoch, "as": PLAIN}),
                measure.all(title),
                measure.phase(PHASE),
                explain_errors({}, moving=False, work="publication"),
            ):
                records_at(self.store.folder / PLAIN).create(shared=True)  # before Spark does
                rows = self._arrange(source, version).select(*(quoted(column.name) for column in address.columns))
                table.publish(rows, self.store.plain_options, json.dumps({"deltafold": epoch}))
        except DeltafoldError as error:
            done = f"view {address.view}: it is refreshed to epoch {address.epoch}, but the plain table is not written"
            error.args = (f"{done}. {error} Or declare publish: fast, which writes none.",)
            raise
        self.costs.append(measure.cost)
        return table

    def _arrange(self, source: Table, version: int) -> DataFrame:
        """Return the rows in files of a usual size, sorted by the columns that the table is clustered by."""
        rows, by = source.at(version), [F.col(quoted(name)) for name in self.store.plain_options.cluster_by]
        files = 1 + source.size(version)[1] // self.store.tuning.file_bytes
        if not by:
            return rows.coalesce(files)
        divided = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *by)
        return divided.sortWithinPartitions(*by)
