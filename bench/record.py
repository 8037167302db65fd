"""From samples to the numbers of one contender, and the shape of the JSON.

Latency percentiles are nearest-rank over all raw samples, failed operations included: an error
after a time-out is time that the user waited too.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NotRequired, TypedDict

from bench.counters import CallCounts
from bench.load import Sample

# Points of a latency curve that the report draws, evenly spread over log(1 - fraction), because
# the interesting part of it is the last per cent.
CURVE_POINTS = 120


class LatencySummary(TypedDict, total=False):
    """Latency in milliseconds from the intended start; only ``count`` when it is 0."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class ShareAt(TypedDict):
    """Share of the reads per endpoint in the interval that ends at ``at_s``; onset is 0."""

    at_s: float
    share: dict[str, float]


class ContenderResult(TypedDict):
    """The numbers of one contender, all its rounds together."""

    name: str
    operations: int
    errors: int
    errors_by_type: dict[str, int]
    throughput_per_s: float
    read: LatencySummary
    write: LatencySummary
    by_method: dict[str, LatencySummary]
    share: dict[str, float]
    write_share: NotRequired[dict[str, float]]
    degraded_share: NotRequired[float]
    round_p99_ms: list[float]
    late_p99_ms: float
    curve: list[tuple[float, float]]
    write_curve: NotRequired[list[tuple[float, float]]]
    timeline: list[ShareAt]
    notes: dict[str, float]


class Bar(TypedDict):
    """One promise and what was measured."""

    name: str
    measured: float
    relation: Literal["<=", ">="]
    bar: float
    holds: bool


class TextTable(TypedDict):
    """Counts that fit no contender's row: a header, then rows, all text."""

    title: str
    rows: list[list[str]]


class Line(TypedDict):
    """One line of a plot."""

    name: str
    points: list[tuple[float, float]]


class Plot(TypedDict):
    """A plot of a scenario's own; the axis of x is logarithmic."""

    title: str
    x: str
    y: str
    lines: list[Line]


class RunResult(TypedDict):
    """One invocation of one scenario: the whole JSON file."""

    scenario: str
    question: str
    mode: str
    seed: int
    environment: dict[str, object]
    parameters: dict[str, object]
    contenders: list[ContenderResult]
    bars: list[Bar]
    tables: NotRequired[list[TextTable]]
    plots: NotRequired[list[Plot]]


class Recorder:
    """Collects the rounds of one contender."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: dict[str, float] = {}
        self.timeline: list[ShareAt] = []
        self._rounds: list[list[Sample]] = []
        self._seconds = 0.0
        self._calls: Counter[str] = Counter()

    def add_round(
        self, samples: Sequence[Sample], *, seconds: float, calls: Mapping[str, int]
    ) -> None:
        """Add one measured slice.

        Args:
            samples: Its operations.
            seconds: How long it was.
            calls: Reads that each server executed in it, by the server's own counter.
        """
        self._rounds.append(list(samples))
        self._seconds += seconds
        self._calls.update(calls)

    def read_p99s(self, *, method: str | None = None) -> list[float]:
        """Return the p99 of each round's reads, in seconds; of one client method when given."""
        return [
            percentile(
                [s.latency for s in samples if s.kind == "read" and method in (None, s.method)],
                0.99,
            )
            for samples in self._rounds
        ]

    def share_of(self, endpoints: Iterable[str]) -> float:
        """Return the part of all reads that ``endpoints`` executed."""
        total = self._calls.total()
        return sum(self._calls[endpoint] for endpoint in endpoints) / total if total else 0.0

    def result(self, *, degraded: Sequence[str] = ()) -> ContenderResult:
        """Return the numbers; ``degraded`` names the endpoints whose share is summed."""
        samples = [sample for done in self._rounds for sample in done]
        errors = Counter(sample.error for sample in samples if sample.error is not None)
        reads = _latencies(samples, kind="read")
        result: ContenderResult = {
            "name": self.name,
            "operations": len(samples),
            "errors": errors.total(),
            "errors_by_type": dict(errors),
            "throughput_per_s": round(len(samples) / self._seconds, 1) if self._seconds else 0.0,
            "read": summarise(reads),
            "write": summarise(_latencies(samples, kind="write")),
            "by_method": {
                method: summarise([s.latency for s in samples if s.method == method])
                for method in sorted({s.method for s in samples})
            },
            "share": {e: self.share_of([e]) for e in sorted(self._calls)},
            "round_p99_ms": [_milliseconds(p99) for p99 in self.read_p99s()],
            "late_p99_ms": _milliseconds(percentile([s.late for s in samples], 0.99)),
            "curve": latency_curve(reads),
            "timeline": self.timeline,
            "notes": self.notes,
        }
        if degraded:
            result["degraded_share"] = self.share_of(degraded)
        return result


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the nearest-rank percentile: the least value that ``fraction`` do not exceed.

    0.0 when there are no values.
    """
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


def summarise(latencies: Sequence[float]) -> LatencySummary:
    """Return the summary of ``latencies``, given in seconds."""
    if not latencies:
        return {"count": 0}
    ordered = sorted(latencies)
    return {
        "count": len(ordered),
        "p50_ms": _milliseconds(percentile(ordered, 0.50)),
        "p90_ms": _milliseconds(percentile(ordered, 0.90)),
        "p99_ms": _milliseconds(percentile(ordered, 0.99)),
        "p999_ms": _milliseconds(percentile(ordered, 0.999)),
        "max_ms": _milliseconds(ordered[-1]),
    }


def latency_curve(latencies: Sequence[float]) -> list[tuple[float, float]]:
    """Return (milliseconds, fraction of operations that were not slower), both rising."""
    if not latencies:
        return []
    ordered = sorted(latencies)
    tail = math.log10(len(ordered))
    points: dict[int, tuple[float, float]] = {}
    for i in range(CURVE_POINTS + 1):
        fraction = 1 - 10 ** (-tail * i / CURVE_POINTS)
        rank = max(1, math.ceil(fraction * len(ordered)))
        points[rank] = (_milliseconds(ordered[rank - 1]), rank / len(ordered))
    points[len(ordered)] = (_milliseconds(ordered[-1]), 1.0)
    return list(points.values())


def shares_over_time(counts: Sequence[CallCounts], *, onset_at: float) -> list[ShareAt]:
    """Return the shares between successive counts; intervals without a read are left out."""
    timeline: list[ShareAt] = []
    for before, after in pairwise(counts):
        calls = {e: after.calls[e] - before.calls[e] for e in after.calls}
        if total := sum(calls.values()):
            share = {endpoint: round(n / total, 4) for endpoint, n in calls.items()}
            timeline.append({"at_s": round(after.at - onset_at, 3), "share": share})
    return timeline


def paired_ratio(above: Recorder, below: Recorder, *, method: str | None = None) -> float:
    """Return the median over the rounds of ``above``'s read p99 / ``below``'s.

    Both ran in each round, minutes apart from other rounds: what the machine did to a round is in
    both, so the ratio within it is steadier than one of pooled percentiles.
    """
    pairs = zip(above.read_p99s(method=method), below.read_p99s(method=method), strict=True)
    return statistics.median(a / b if b else math.inf for a, b in pairs)


def bar(name: str, measured: float, relation: Literal["<=", ">="], limit: float) -> Bar:
    """Return a bar that compared ``measured`` with ``limit``."""
    holds = measured <= limit if relation == "<=" else measured >= limit
    return {"name": name, "measured": measured, "relation": relation, "bar": limit, "holds": holds}


def _latencies(samples: Iterable[Sample], *, kind: str) -> list[float]:
    return [sample.latency for sample in samples if sample.kind == kind]


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 4)
