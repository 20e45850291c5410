"""Define the tunable sizes, limits and waits in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

MB = 1 << 20
AT_LEAST_ONE = {
    "range_slices", "range_intervals", "bucket_bytes", "buckets", "most_buckets", "full_bucket_bytes", "file_bytes",
    "recent_epochs", "timed_epochs", "kept_epochs", "point_log_rows", "point_log_file_rows",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CostRates:
    """The seconds and bytes of a machine with two cores; only their ratio matters, and measured epochs correct them.

    merge_seconds: one Delta MERGE of a state, its preparation included; rewrite_seconds: one rewrite of a state of at
    most `small_state_bytes`; small_state_bytes: a larger one is merged; publish_seconds: one commit of a table that is
    only appended to or replaced. recompute_seconds: running a query, comparing its answer with the view, and one
    commit. term_seconds: planning and starting one more term of a change; round_seconds: one round of a loop.
    scan_bytes: bytes read in a second; operator_bytes: in a second, for each join, grouping or window of the whole
    query, beyond reading them. state_ratio: the ratio of a state's bytes to its input's; unskipped: the share of a
    join's other inputs that is read. rewound_bytes, few_bytes: an input that is read once for before and after, and a
    change that allows it. changed_rounds, all_rounds: of a loop that ends by itself, those of a small change, and from
    the start; cluster_rounds: of k-means whose points need not be read again.
    """

    merge_seconds: float = 1.4
    rewrite_seconds: float = 0.4
    small_state_bytes: float = 16e6
    publish_seconds: float = 0.3
    recompute_seconds: float = 0.5
    term_seconds: float = 0.15
    round_seconds: float = 0.3
    scan_bytes: float = 100e6
    operator_bytes: float = 80e6
    state_ratio: float = 0.05
    unskipped: float = 0.6
    rewound_bytes: float = 32e6
    few_bytes: float = 5e6
    changed_rounds: float = 4
    all_rounds: float = 15
    cluster_rounds: float = 2

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not a number, or by which nothing could be divided."""
        for rate in fields(self):
            _check_number("CostRates", rate.name, getattr(self, rate.name), 0)
        if not (self.scan_bytes and self.operator_bytes):
            raise ValueError("CostRates: scan_bytes and operator_bytes cannot be 0. Give the bytes of a second.")


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Sizes and limits of one warehouse, which a test replaces by passing another one.

    Limits of what knows no warehouse (a Delta table or its log, a scan of a file) are constants of its module, which
    tests patch, and so is what no user would tune: how much of a text or how many rows an error shows.

    prune_above_bytes: a smaller input is read completely, since finding the relevant part takes longer.
    broadcast_rows: fewer rows are broadcast to the tasks that read the other side.
    broadcast_bytes: and so are more rows, if their types suggest at most this number of bytes.
    change_bytes: a change that is expected to be larger is not computed ahead of its join.
    cancelled_bytes: in a change of at most this number of bytes, equal rows of rewritten files are cancelled even where
    only a sum reads them, so that reports count the rows that really changed.
    range_slices, range_intervals: the number of slices of a key's range, and the most intervals of them in a
    condition.
    rewrite_files, rewrite_bytes: a state or a view of up to this size is rewritten, not merged.
    plain_bytes: an answer of less than this size is published as a plain table too, which each refresh rewrites.
    rewrite_touched_bytes: the touched buckets of a larger state are rewritten by one task up to this size.
    local_bytes: a change that reads at most this number of bytes is computed by one task.
    local_rows: a result of at most this number of rows is kept in the driver.
    restart_rows, restart_share: a loop of which more candidates are touched, and more than this share of all that are
    stored, is computed from nothing.
    reread_share: k-means of which a refresh would read more than this share of the old points is evaluated from the
    start, which renews their margins.
    point_log_rows, point_log_file_rows: a log of k-means with more rows than this number for each point is rewritten,
    into files of this number of rows, so that those of points far from a border are skipped.
    reported_partitions: the most partitions of an answer in a report; if there are more, it lists none.
    bucket_bytes, buckets: a new state gets one bucket per `bucket_bytes` of its sources, at most `buckets`.
    most_buckets: the most that a user may ask for; each is a folder and a file.
    full_bucket_bytes: upkeep stores a view whose buckets have more bytes than this, on average, in buckets of half of
    it; file_bytes: it writes larger buckets as several files of about this size.
    change_share: the expected share of changed bytes of a source, before the first epoch.
    switch_below: policy auto changes the mode if the other one is expected to take less than this share of time.
    recompute_below: the same for a change to a recompute that was timed, which needs no state.
    trial_factor, trial_loads: a recompute that was never timed is expected to take at most this multiple of its least
    estimate, unless a first load takes more than this number of refreshes.
    new_table_seconds: the time to create the table of an answer, beyond replacing its rows.
    recent_epochs, timed_epochs: the number of epochs read from the journal, and of those of a mode that correct it.
    law_rows, law_values: the laws of a declared monoid are checked on this number of different values of these rows.
    small_file_bytes, small_files, deleted_share: a partition with this number of files below this size, or with a
    greater share of deleted rows, is fragmented: upkeep compacts it.
    kept_epochs: upkeep removes older entries of the journal.
    lock_seconds, landing_lock_seconds: the time to wait for another process that works on the same view, or lands the
    same source.
    rates: those by which the compiler estimates the costs of a refresh and of a recompute.
    """

    prune_above_bytes: int = 8 * MB
    broadcast_rows: int = 50_000
    broadcast_bytes: int = 16 * MB
    change_bytes: int = 256 * MB
    cancelled_bytes: int = 64 * MB
    range_slices: int = 256
    range_intervals: int = 16
    rewrite_files: int = 4
    rewrite_bytes: int = 4 * MB
    plain_bytes: int = 4 * MB
    rewrite_touched_bytes: int = 8 * MB
    local_bytes: int = 8 * MB
    local_rows: int = 50_000
    restart_rows: int = 100_000
    restart_share: float = 0.5
    reread_share: float = 0.1
    point_log_rows: int = 2
    point_log_file_rows: int = 250_000
    reported_partitions: int = 1000
    bucket_bytes: int = 512 * MB
    buckets: int = 64
    most_buckets: int = 4096
    full_bucket_bytes: int = 512 * MB
    file_bytes: int = 128 * MB
    change_share: float = 0.01
    switch_below: float = 0.75
    recompute_below: float = 0.95
    trial_factor: float = 1.5
    trial_loads: float = 2.0
    new_table_seconds: float = 1.0
    recent_epochs: int = 100
    timed_epochs: int = 3
    law_rows: int = 1000
    law_values: int = 12
    small_file_bytes: int = 32 * MB
    small_files: int = 4
    deleted_share: float = 0.1
    kept_epochs: int = 200
    lock_seconds: float = 60.0
    landing_lock_seconds: float = 600.0
    rates: CostRates = field(default_factory=CostRates)

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not a number, or with which no refresh could run."""
        for size in fields(self):
            if size.name != "rates":
                _check_number("Tuning", size.name, getattr(self, size.name), 1 if size.name in AT_LEAST_ONE else 0)


def _check_number(record: str, name: str, value: object, least: int) -> None:
    """Raise ValueError for a value that is not a number, or is less than the least one that works."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
        raise ValueError(f"{record}: {name} cannot be {value!r}. Give a number, {least} or more.")
