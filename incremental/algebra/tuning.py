"""Define the tunable sizes, limits and waits in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass, fields

MB = 1 << 20
AT_LEAST_ONE = {"range_slices", "range_intervals", "bucket_bytes", "buckets", "recent_epochs", "timed_epochs"}


@dataclass(frozen=True)
class Tuning:
    """Sizes and limits of one warehouse; a test passes another one and patches nothing.

    prune_above_bytes: a smaller input is read completely, since finding the relevant part takes longer.
    broadcast_rows: fewer rows are broadcast to the tasks that read the other side.
    change_bytes: a change that Spark expects to be larger is not computed ahead of its join.
    range_slices, range_intervals: the number of slices of a key's range, and the most intervals of them in a
    condition.
    rewrite_files, rewrite_bytes: a state or a view of up to this size is rewritten, not merged.
    rewrite_touched_bytes: the touched buckets of a larger state are rewritten by one task up to this size.
    local_bytes: a change that reads at most this number of bytes is computed by one task.
    local_rows: a result of at most this number of rows is kept in the driver.
    restart_rows, restart_share: a loop of which more candidates are touched, and more than this share of all that are
    stored, is computed from nothing.
    reported_partitions: the most partitions of an answer in a report; if there are more, it lists none.
    bucket_bytes, buckets: a new state gets one bucket per `bucket_bytes` of its sources, at most `buckets`.
    change_share: the expected share of changed bytes of a source, before the first epoch.
    switch_below: policy auto changes the mode if the other one is expected to take less than this share of time.
    recompute_below: the same for a change to a recompute that was timed, which needs no state.
    trial_factor: a recompute that was never timed is expected to take at most this multiple of its least estimate.
    new_table_seconds: the time to create the table of an answer, beyond replacing its rows.
    recent_epochs, timed_epochs: the number of epochs read from the journal, and of those of a mode that correct it.
    law_rows, law_values: the laws of a declared monoid are checked on this number of different values of these rows.
    lock_seconds: the time to wait for another process that works on the same view.
    """

    prune_above_bytes: int = 32 * MB
    broadcast_rows: int = 50_000
    change_bytes: int = 256 * MB
    range_slices: int = 256
    range_intervals: int = 16
    rewrite_files: int = 4
    rewrite_bytes: int = 16 * MB
    rewrite_touched_bytes: int = 64 * MB
    local_bytes: int = 8 * MB
    local_rows: int = 50_000
    restart_rows: int = 100_000
    restart_share: float = 0.5
    reported_partitions: int = 1000
    bucket_bytes: int = 512 * MB
    buckets: int = 64
    change_share: float = 0.01
    switch_below: float = 0.75
    recompute_below: float = 0.95
    trial_factor: float = 1.5
    new_table_seconds: float = 1.0
    recent_epochs: int = 100
    timed_epochs: int = 3
    law_rows: int = 1000
    law_values: int = 12
    lock_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not a number, or with which no refresh could run."""
        for each in fields(self):
            value, least = getattr(self, each.name), 1 if each.name in AT_LEAST_ONE else 0
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
                raise ValueError(f"Tuning.{each.name} cannot be {value!r}. Give a number, {least} or more.")
