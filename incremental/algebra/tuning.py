"""The numbers that trade reading against planning: sizes, limits and waits, in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1 << 20


@dataclass(frozen=True)
class Tuning:
    """Sizes and limits of one warehouse; a test passes another one and patches nothing.

    prune_above_bytes: a smaller input is read whole, since finding out which part of it matters takes longer.
    broadcast_rows: fewer rows are sent to every task that reads the other side.
    change_bytes: a change that Spark expects to be larger is not computed ahead of its join.
    range_slices, range_intervals: into how many slices the range of a key is cut, and how many intervals of them a
    condition may have.
    rewrite_files, rewrite_bytes: a state or a view of no more files and bytes is rewritten whole, not merged.
    local_bytes, local_rows: a change that reads no more bytes is computed by one task, and so many rows of it are held
    by the driver.
    restart_rows, restart_share: a loop of which more candidates are touched, and more than this share of all that are
    stored, is computed from nothing.
    reported_partitions: a report names no more partitions of an answer; beyond that it names none.
    bucket_bytes, buckets: a new state gets one bucket for so many bytes of its sources, at most so many.
    change_share: the share of a source that is expected to change, before any epoch has shown it.
    switch_below: policy auto changes the mode if the other one is expected to cost less than this share.
    trial_factor: a recompute that was never timed is expected to cost at most so many times its least.
    recent_epochs, timed_epochs: how many epochs of the journal are read, and how many of a mode correct its estimate.
    lock_seconds: how long to wait for another process that works on the same view.
    """

    prune_above_bytes: int = 32 * MB
    broadcast_rows: int = 50_000
    change_bytes: int = 256 * MB
    range_slices: int = 256
    range_intervals: int = 16
    rewrite_files: int = 4
    rewrite_bytes: int = 16 * MB
    local_bytes: int = 8 * MB
    local_rows: int = 50_000
    restart_rows: int = 100_000
    restart_share: float = 0.5
    reported_partitions: int = 1000
    bucket_bytes: int = 512 * MB
    buckets: int = 64
    change_share: float = 0.01
    switch_below: float = 0.75
    trial_factor: float = 1.5
    recent_epochs: int = 100
    timed_epochs: int = 3
    lock_seconds: float = 60.0
