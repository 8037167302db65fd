import json
import math

import pytest

from bench.counters import CallCounts
from bench.load import Sample
from bench.record import (
    Recorder,
    bar,
    latency_curve,
    paired_ratio,
    percentile,
    shares_over_time,
    summarise,
)
from bench.workload import Kind


def sample(
    latency: float, *, kind: Kind = "read", method: str = "get", error: str | None = None
) -> Sample:
    return Sample(0.0, latency, 0.0001, kind, method, error)


def recorder(*latencies: float, name: str = "one", method: str = "get") -> Recorder:
    made = Recorder(name)
    samples = [sample(latency, method=method) for latency in latencies]
    made.add_round(samples, seconds=1.0, calls={"a": 1})
    return made


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_percentiles_are_nearest_rank(fraction: float, expected: float) -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, fraction) == expected


def test_one_value_is_every_percentile_and_none_is_zero() -> None:
    assert percentile([3.0], 0.5) == percentile([3.0], 0.999) == 3.0
    assert percentile([], 0.5) == 0.0


def test_a_summary_is_in_milliseconds() -> None:
    assert summarise([0.001, 0.002]) == {
        "count": 2,
        "p50_ms": 1.0,
        "p90_ms": 2.0,
        "p99_ms": 2.0,
        "p999_ms": 2.0,
        "max_ms": 2.0,
    }
    assert summarise([]) == {"count": 0}


def test_a_curve_rises_to_the_slowest_of_all() -> None:
    curve = latency_curve([i / 1000 for i in range(1, 1001)])
    assert curve == sorted(curve)
    assert curve[-1] == (1000.0, 1.0)
    assert latency_curve([]) == []


def test_the_json_has_the_documented_shape() -> None:
    made = Recorder("ours")
    made.add_round(
        [sample(0.001), sample(0.5, error="TimeoutError"), sample(0.002, kind="write")],
        seconds=2.0,
        calls={"a": 1, "b": 3},
    )
    made.add_round([sample(0.003)], seconds=2.0, calls={"a": 4})
    result = json.loads(json.dumps(made.result(degraded=["b"])))
    assert result["name"] == "ours"
    assert result["operations"] == 4
    assert (result["errors"], result["errors_by_type"]) == (1, {"TimeoutError": 1})
    assert result["throughput_per_s"] == 1.0
    assert (result["read"]["count"], result["read"]["max_ms"]) == (3, 500.0)
    assert result["write"]["count"] == 1
    assert result["share"] == {"a": 5 / 8, "b": 3 / 8}
    assert result["degraded_share"] == 3 / 8
    assert result["round_p99_ms"] == [500.0, 3.0]
    assert result["by_method"]["get"]["count"] == 4
    assert result["late_p99_ms"] == 0.1


def test_a_contender_without_a_round_has_no_numbers() -> None:
    result = Recorder("idle").result(degraded=["a"])
    assert result["read"] == {"count": 0}
    assert (result["throughput_per_s"], result["degraded_share"]) == (0.0, 0.0)


def test_ratios_are_taken_within_a_round() -> None:
    above, below = recorder(0.010), recorder(0.001)
    for made, latency in ((above, 0.100), (below, 0.010), (above, 0.4), (below, 0.001)):
        made.add_round([sample(latency)], seconds=1.0, calls={})
    assert paired_ratio(above, below) == pytest.approx(10.0)


def test_a_ratio_can_look_at_one_method() -> None:
    above, below = recorder(0.002), recorder(0.001)
    assert paired_ratio(above, below, method="get") == pytest.approx(2.0)
    assert paired_ratio(above, below, method="lrange") == math.inf


def test_shares_are_those_of_each_interval() -> None:
    counts = [
        CallCounts(1.0, {"a": 10, "b": 10}),
        CallCounts(1.5, {"a": 13, "b": 11}),
        CallCounts(2.0, {"a": 13, "b": 11}),
        CallCounts(2.5, {"a": 13, "b": 15}),
    ]
    assert shares_over_time(counts, onset_at=2.0) == [
        {"at_s": -0.5, "share": {"a": 0.75, "b": 0.25}},
        {"at_s": 0.5, "share": {"a": 0.0, "b": 1.0}},
    ]


@pytest.mark.parametrize(
    ("measured", "relation", "holds"),
    [(1.0, "<=", True), (1.1, "<=", False), (1.0, ">=", True), (0.9, ">=", False)],
)
def test_a_bar_holds_on_the_right_side_and_exactly(
    measured: float, relation: str, holds: bool
) -> None:
    made = bar("x", measured, "<=" if relation == "<=" else ">=", 1.0)
    assert made["holds"] is holds
