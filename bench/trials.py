"""The numbers of one contender in closed loops: its trials, their mean and their spread."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.closed_loop import Measured
from bench.load import Sample
from bench.record import (
    ContenderResult,
    Recorder,
    ShareAt,
    TextTable,
    latency_curve,
    percentile,
)
from bench.workload import Kind

KINDS: Final[tuple[Kind, ...]] = ("read", "write")
WINDOW: Final = 0.25
"""Seconds of one point of the share over time."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The figures of one measured slice; durations in seconds."""

    throughput: float
    """Operations that succeeded, per second."""
    read_p50: float
    read_p99: float
    write_p50: float
    write_p99: float
    degraded_share: float
    """Part of the reads that the degraded members answered, those after ``settled`` only; where
    replies do not tell who answered, part of all requests of the slice."""
    cpu: float


FIGURES: Final = {
    "throughput": ("per second", 1.0),
    "read_p50": ("read p50 ms", 1e3),
    "read_p99": ("read p99 ms", 1e3),
    "write_p50": ("write p50 ms", 1e3),
    "write_p99": ("write p99 ms", 1e3),
    "cpu": ("client CPU", 1.0),
}
"""What the table of trials shows: the title of each figure, and what it is multiplied by."""


@dataclass
class Trials:
    """Collects the trials of one contender.

    Attributes:
        name: Of the contender.
        degraded: Names of the members whose share of the reads is asked for.
        settled: Seconds from the start of a slice before which reads do not count for it.
    """

    name: str
    degraded: Collection[str] = ()
    settled: float = 0.0
    all: list[Trial] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    received: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.name)

    def add(self, measured: Measured, received: Mapping[str, int] | None = None) -> None:
        """Add one measured slice.

        Args:
            measured: The slice.
            received: How many requests each server counted in it; None where every reply tells
                who answered.
        """
        samples = measured.samples
        self.received.update(received or {})
        calls = answered(samples, kind="read") if received is None else received
        self.recorder.add_round(samples, seconds=measured.seconds, calls=calls)
        if not self.recorder.timeline:
            self.recorder.timeline = shares_in_windows(samples)
        self.samples += samples
        late = (
            answered((s for s in samples if s.at >= self.settled), kind="read")
            if received is None
            else Counter(received)
        )
        reads, writes = (
            [sample.latency for sample in samples if sample.kind == kind] for kind in KINDS
        )
        self.all.append(
            Trial(
                throughput=sum(sample.error is None for sample in samples) / measured.seconds,
                read_p50=percentile(reads, 0.5),
                read_p99=percentile(reads, 0.99),
                write_p50=percentile(writes, 0.5),
                write_p99=percentile(writes, 0.99),
                degraded_share=sum(late[name] for name in self.degraded) / max(late.total(), 1),
                cpu=measured.cpu,
            )
        )

    def values(self, figure: str) -> list[float]:
        """Return a figure of `Trial` in each trial."""
        return [getattr(trial, figure) for trial in self.all]

    def mean(self, figure: str) -> float:
        """Return the mean of a figure."""
        return statistics.fmean(self.values(figure))

    def result(self) -> ContenderResult:
        """Return the numbers, with those of writes where there are any."""
        notes = self.recorder.notes
        if any(sample.kind == "write" for sample in self.samples):
            notes["write_p50_ms"] = round(self.mean("write_p50") * 1e3, 3)
            notes["write_p99_ms"] = round(self.mean("write_p99") * 1e3, 3)
        notes["client_cpu"] = round(self.mean("cpu"), 2)
        result = self.recorder.result(degraded=sorted(self.degraded))
        result["throughput_per_s"] = round(self.mean("throughput"), 1)
        writes = answered(self.samples, kind="write")
        result["write_share"] = {
            name: count / max(writes.total(), 1) for name, count in sorted(writes.items())
        }
        result["write_curve"] = latency_curve(
            [sample.latency for sample in self.samples if sample.kind == "write"]
        )
        if self.degraded:
            result["degraded_share"] = self.mean("degraded_share")
        return result


def answered(samples: Iterable[Sample], *, kind: Kind) -> Counter[str]:
    """Return how many reads, or writes, each member answered, by its own word."""
    return Counter(s.endpoint for s in samples if s.kind == kind and s.endpoint)


def shares_in_windows(samples: Sequence[Sample], *, onset: float = 0.0) -> list[ShareAt]:
    """Return the share of the reads per member over time, by their starts."""
    windows: dict[int, Counter[str]] = {}
    names = sorted(answered(samples, kind="read"))
    for sample in samples:
        if sample.kind == "read" and sample.endpoint:
            windows.setdefault(int(sample.at / WINDOW), Counter())[sample.endpoint] += 1
    return [
        {
            "at_s": round((number + 1) * WINDOW - onset, 3),
            "share": {name: round(counts[name] / counts.total(), 4) for name in names},
        }
        for number, counts in sorted(windows.items())
    ]


def paired(above: Trials, below: Trials, figure: str) -> float:
    """Return the median over the trials of ``above``'s figure / ``below``'s.

    Both ran in each round, so what the machine did to a round is in both.
    """
    pairs = zip(above.values(figure), below.values(figure), strict=True)
    return statistics.median(a / b if b else math.inf for a, b in pairs)


def table_of_trials(contenders: Iterable[Trials]) -> TextTable:
    """Return mean +- standard deviation over the trials of each figure."""
    rows = [["contender", *(title for title, _ in FIGURES.values())]]
    for trials in contenders:
        row = [trials.name]
        for figure, (_, scale) in FIGURES.items():
            values = [value * scale for value in trials.values(figure)]
            spread = f" +- {_number(statistics.stdev(values))}" if len(values) > 1 else ""
            row.append(f"{_number(statistics.fmean(values))}{spread}")
        rows.append(row)
    return {"title": "mean and standard deviation over the trials", "rows": rows}


def table_of_shares(contenders: Iterable[Trials], names: Mapping[str, str]) -> TextTable:
    """Return each member's part of the reads and of the writes.

    Args:
        contenders: All of them.
        names: What each member is called, and what it is.
    """
    rows = [
        [
            "contender",
            *(f"{kind} {what}" for kind in ("reads", "writes") for what in names.values()),
        ]
    ]
    for trials in contenders:
        row = [trials.name]
        for kind in KINDS:
            counts = answered(trials.samples, kind=kind)
            total = counts.total()
            row += [f"{counts[name] / total:.1%}" if total else "-" for name in names]
        rows.append(row)
    return {"title": "share per member, by the member id in the replies", "rows": rows}


def table_of_requests(contenders: Iterable[Trials], names: Mapping[str, str]) -> TextTable:
    """Return each server's part of all requests, reads and writes, by its own counter.

    Args:
        contenders: All of them.
        names: What each server is called, and what it is.
    """
    rows = [["contender", *names.values()]]
    for trials in contenders:
        total = max(trials.received.total(), 1)
        rows.append([trials.name, *(f"{trials.received[name] / total:.1%}" for name in names)])
    return {"title": "share of all requests per server, by its own counter", "rows": rows}


def table_of_errors(contenders: Iterable[Trials]) -> TextTable:
    """Return the errors by contender, kind and status code, with when the calls had started."""
    rows = [["contender", "kind", "error", "count", "first at s", "last at s"]]
    for trials in contenders:
        failed: dict[tuple[str, str], list[float]] = {}
        for sample in trials.samples:
            if sample.error is not None:
                failed.setdefault((sample.kind, sample.error), []).append(sample.at)
        for (kind, error), starts in sorted(failed.items()):
            times = [f"{min(starts):.2f}", f"{max(starts):.2f}"]
            rows.append([trials.name, kind, error, str(len(starts)), *times])
    return {"title": "errors, by when in the slice the failed calls had started", "rows": rows}


def results(contenders: Mapping[Any, Trials]) -> list[ContenderResult]:
    """Return the numbers of all."""
    return [trials.result() for trials in contenders.values()]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
