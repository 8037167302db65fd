"""Kinds of operation: who is told apart, what a kind costs, what becomes the unit."""

from __future__ import annotations

import pytest

from lb_strategies import BalancerOptions, LoadBalancer, LoadBalancingStrategy, Outcome
from lb_strategies.endpoint import EndpointState
from lb_strategies.operations import CostClass, CostClasses

from .scripted import MS, answer, balancer, ejected, look

ABC = ("a", "b", "c")


def states(count: int = 2) -> list[EndpointState]:
    return [EndpointState(name, BalancerOptions()) for name in "abcde"[:count]]


def learn(
    classes: CostClasses, of: list[EndpointState], kind: CostClass, rtt: float, times: int = 1
) -> float:
    """Let every endpoint answer once and return the product of the factors."""
    factor = 1.0
    for index in range(times):
        for state in of:
            factor *= classes.learn(state, kind, rtt, float(index), of)
            state.learn(rtt / kind.scale, float(index))
    return factor


def test_the_first_kind_is_the_unit_and_known_from_the_start() -> None:
    classes = CostClasses(64)
    first = classes.get("get", 1, 0.0, states())
    assert (first.scale, first.is_known) == (1.0, True)
    assert classes.get("get", 1, 0.0, states()) is first


def test_a_size_is_a_kind_by_its_power_of_two() -> None:
    classes = CostClasses(64)
    of = {units: classes.get("get", units, 0.0, []) for units in (1, 2, 3, 4, 7, 8)}
    assert of[2] is of[3]
    assert of[4] is of[7]
    assert len({id(kind) for kind in of.values()}) == 4


def test_without_normalization_there_is_one_kind() -> None:
    classes = CostClasses(64, enabled=False)
    assert classes.get("get", 1, 0.0, []) is classes.get("scan", 100, 0.0, [])
    assert len(classes) == 1


def test_a_second_kind_is_scaled_by_what_it_usually_costs() -> None:
    classes, of = CostClasses(64), states()
    get = classes.get("get", 1, 0.0, of)
    learn(classes, of, get, MS, times=20)
    scan = classes.get("scan", 1, 0.0, of)
    was_known = scan.is_known
    learn(classes, of, scan, 50 * MS, times=3)
    assert (was_known, scan.is_known) == (False, True)
    assert scan.scale == pytest.approx(50.0)


def test_a_slow_endpoint_does_not_set_the_baseline() -> None:
    """The low median over three endpoints is the second, whatever the third does."""
    classes, of = CostClasses(64), states(3)
    learn(classes, of, classes.get("get", 1, 0.0, of), MS, times=20)
    scan = classes.get("scan", 1, 0.0, of)
    for state, rtt in zip(of, (0.010, 0.011, 10.0), strict=True):
        classes.learn(state, scan, rtt, 0.0, of)
    assert scan.scale == pytest.approx(11.0)


def test_a_settled_baseline_is_reviewed_once_a_second() -> None:
    classes, of = CostClasses(64), states()
    learn(classes, of, classes.get("get", 1, 0.0, of), MS, times=40)
    scan = classes.get("scan", 1, 0.0, of)
    for _ in range(17):
        classes.learn(of[0], scan, 10 * MS, 100.0, of)
    settled = scan.scale
    for _ in range(10):
        classes.learn(of[0], scan, 100 * MS, 100.9, of)
    assert scan.scale == settled
    classes.learn(of[0], scan, 100 * MS, 101.1, of)
    assert scan.scale > settled


def test_the_most_common_kind_becomes_the_unit() -> None:
    """With more than twice the samples; a stored estimate times the factor is in the new unit."""
    classes, of = CostClasses(64), states()
    get = classes.get("get", 1, 0.0, of)
    learn(classes, of, get, MS, times=2)
    scan = classes.get("scan", 1, 0.0, of)
    factor = learn(classes, of, scan, 40 * MS, times=6)
    assert factor == pytest.approx(40.0)
    assert scan.scale == 1.0
    assert get.scale == pytest.approx(1 / 40)


def test_a_unit_that_nobody_answers_is_given_up() -> None:
    """Such as a blocking read that happened to come first: its age must prove nothing."""
    classes, of = CostClasses(64), states()
    blocking = classes.get("blpop", 1, 0.0, of)
    get = classes.get("get", 1, 0.0, of)
    assert learn(classes, of, get, MS) == 1.0
    assert (get.scale, get.is_known) == (1.0, True)
    assert not blocking.is_known


def test_at_most_so_many_kinds_are_kept_and_the_unit_always() -> None:
    classes, of = CostClasses(3), states()
    unit = classes.get("get", 1, 0.0, of)
    learn(classes, of, unit, MS, times=30)
    for index in range(100):
        kind = classes.get(f"kind {index}", 1, float(index), of)
        classes.learn(of[0], kind, MS, float(index), of)
        assert len(classes) <= 3
        assert len(of[0].class_means) <= 3
    assert classes.get("get", 1, 0.0, of) is unit


def test_the_least_recently_used_kind_is_dropped() -> None:
    classes, of = CostClasses(3), states()
    learn(classes, of, classes.get("get", 1, 0.0, of), MS)
    old = classes.get("old", 1, 1.0, of)
    new = classes.get("new", 1, 2.0, of)
    classes.learn(of[0], old, MS, 3.0, of)
    classes.get("newest", 1, 4.0, of)
    assert classes.get("old", 1, 5.0, of) is old
    assert classes.get("new", 1, 5.0, of) is not new


def test_a_kind_that_waits_for_its_first_answer_counts_as_used() -> None:
    """Or two new kinds in flight at once would evict each other for ever."""
    classes, of = CostClasses(3), states()
    learn(classes, of, classes.get("get", 1, 0.0, of), MS)
    old = classes.get("old", 1, 1.0, of)
    classes.learn(of[0], old, MS, 1.0, of)
    x = classes.get("x", 1, 2.0, of)
    y = classes.get("y", 1, 3.0, of)
    assert classes.get("x", 1, 4.0, of) is not old
    assert (len(classes), x.used_at, y.used_at) == (3, 2.0, 3.0)


def test_an_answer_of_a_dropped_kind_changes_no_baseline() -> None:
    """Nor when a kind of the same name has taken its place meanwhile."""
    classes, of = CostClasses(2), states()
    learn(classes, of, classes.get("get", 1, 0.0, of), MS)
    dropped = classes.get("scan", 1, 1.0, of)
    classes.get("other", 1, 2.0, of)
    assert classes.learn(of[0], dropped, 1.0, 3.0, of) == 1.0
    successor = classes.get("scan", 1, 4.0, of)
    assert successor is not dropped
    for _ in range(20):
        assert classes.learn(of[0], dropped, 1.0, 5.0, of) == 1.0
    assert dropped not in of[0].class_means
    assert not dropped.is_known


def test_a_limit_of_one_is_one_kind() -> None:
    classes = CostClasses(1)
    assert classes.get("get", 1, 0.0, []) is classes.get("scan", 1, 0.0, [])
    assert len(classes) == 1


def test_a_new_unit_moves_estimates_and_ejects_nobody() -> None:
    """GETs of 1 ms, then only scans of 40 ms: the scan becomes the unit within 25 of them."""
    target = balancer(LoadBalancingStrategy.HYBRID)
    now = answer(target, ABC, now=0.0, operation="get", times=4)
    look(target, ABC, now=now)
    now = answer(target, ABC, now=now, operation="scan", rtt=40 * MS, times=20)
    assert ejected(target, now=now) == set()
    for stats in target.snapshot(now=now).values():
        assert stats.mean_rtt == pytest.approx(40 * MS, rel=1e-6)
        assert stats.ejections == 0


def test_a_probe_is_judged_in_the_new_unit() -> None:
    """Three scans, then GETs: the seventh makes them the unit while a probe is in flight.

    It takes 10 ms, which is much for a GET and little for a scan, whose median was cached.
    """
    target = balancer()
    now = answer(target, ABC, now=0.0, operation="scan", rtt=40 * MS, times=1)
    look(target, ABC, now=now)
    now = answer(target, ABC, now=now, operation="get", times=2)
    for _ in range(5):
        target.begin("a", now=now, operation="get").done(Outcome.FAILURE, now=now)
    probe = target.acquire(ABC, now=now + 1.2, operation="get")
    assert (probe.endpoint, probe.is_probe) == ("a", True)
    answer(target, ("b", "c"), now=now + 1.2, operation="get", times=4)
    probe.done(Outcome.SUCCESS, now=probe.started_at + 10 * MS)
    assert ejected(target, now=now + 2.0) == {"a"}


def test_a_membership_that_is_replaced_finds_a_new_unit() -> None:
    """Nobody left has answered the unit: the next kind takes its place, and ratios still hold."""
    target = balancer()
    now = answer(target, ABC, now=0.0, operation="get", times=20)
    now = answer(target, ABC, now=now, operation="scan", rtt=50 * MS, times=5)
    target.update(["x", "y", "z"])
    now = answer(target, ["x", "y"], now=now, operation="scan", rtt=50 * MS, times=5)
    now = answer(target, ["x", "y", "z"], now=now, operation="get", times=5)
    now = answer(target, ["x", "y", "z"], now=now, operation="scan", rtt=50 * MS, times=5)
    means = [s.mean_rtt for s in target.snapshot(now=now).values()]
    assert max(means) == pytest.approx(min(means), rel=1e-6)


def test_two_new_kinds_in_flight_at_once_are_both_learnt() -> None:
    target = LoadBalancer(
        LoadBalancingStrategy.LATENCY_BASED, options=BalancerOptions(max_classes=3)
    )
    now = answer(target, ["a"], now=0.0, operation="get", times=50)
    now = answer(target, ["a"], now=now, operation="old", times=5)
    for _ in range(3):
        x = target.begin("a", now=now, operation="x")
        y = target.begin("a", now=now, operation="y")
        now += 10.0
        x.done(Outcome.SUCCESS, now=now)
        y.done(Outcome.SUCCESS, now=now)
    # Scaled by what they usually cost, 10 s are no more than a get's millisecond.
    assert target.snapshot(now=now)["a"].mean_rtt == pytest.approx(MS, rel=1e-3)
    # Learnt is more than ignored: a tenth of the usual cost shows.
    target.begin("a", now=now, operation="y").done(Outcome.SUCCESS, now=now + 1.0)
    assert target.snapshot(now=now + 1.0)["a"].mean_rtt < 0.9 * MS
