"""The record of one endpoint: the estimates, what a user is shown."""

import dataclasses
import math

import pytest

from lb_strategies import BalancerOptions, LoadBalancingStrategy
from lb_strategies.endpoint import EndpointState

from .scripted import MS, answer, balancer, fail, look


def state() -> EndpointState:
    return EndpointState("a", BalancerOptions())


def test_an_endpoint_without_an_answer_is_cold_and_at_the_prior() -> None:
    cold = state()
    assert cold.is_cold
    cold.assume(0.005)
    assert cold.mean_rtt == pytest.approx(0.005)
    assert cold.log_mean == pytest.approx(math.log(0.005))
    assert cold.peak_rtt(1e6) == 0.005


def test_a_prior_does_not_overwrite_what_was_learnt() -> None:
    warm = state()
    warm.learn(MS, 0.0)
    warm.assume(1.0)
    assert not warm.is_cold
    assert warm.mean_rtt == pytest.approx(MS)
    assert warm.peak_rtt(0.0) == MS


def test_load_is_the_peak_times_the_requests_with_the_new_one() -> None:
    warm = state()
    warm.learn(MS, 0.0)
    assert warm.load(0.0) == MS
    warm.in_flight = 3
    assert warm.load(0.0) == 4 * MS


def test_a_busy_cold_endpoint_is_dearer_than_any_other_and_still_ordered() -> None:
    cold, warm = state(), state()
    warm.learn(30.0, 0.0)
    warm.in_flight = 10_000
    cold.in_flight = 1
    once = cold.load(0.0)
    cold.in_flight = 2
    assert warm.load(0.0) < once < cold.load(0.0)


def test_the_age_of_a_hung_request_bounds_the_peak_from_below() -> None:
    warm = state()
    warm.learn(MS, 0.0)
    warm.hung_age = 2.0
    assert warm.peak_rtt(0.0) == 2.0


def test_a_failure_raises_the_peak_to_its_penalty_and_the_mean_never_falls() -> None:
    warm = state()
    warm.learn(0.1, 0.0)
    warm.punish(5.0, MS, 1.0)
    assert warm.peak_rtt(1.0) == 5.0
    assert warm.mean_rtt == pytest.approx(0.1)
    warm.punish(5.0, 3.0, 2.0)
    assert warm.mean_rtt > 0.1


def test_a_cold_endpoint_that_fails_is_known_by_its_penalty() -> None:
    cold = state()
    cold.assume(MS)
    cold.punish(5.0, MS, 1.0)
    assert not cold.is_cold
    assert cold.peak_rtt(1.0) == 5.0
    assert cold.mean_rtt == pytest.approx(MS)


def test_another_unit_scales_both_estimates_and_the_prior() -> None:
    warm = state()
    warm.learn(MS, 0.0)
    warm.rescale(40.0)
    assert warm.peak_rtt(0.0) == pytest.approx(40 * MS)
    assert warm.mean_rtt == pytest.approx(40 * MS)
    assert warm.prior == pytest.approx(40 * 0.030)
    assert warm.mean.updated_at == 0.0


def test_the_statistics_are_a_copy_with_every_counter() -> None:
    target = balancer(LoadBalancingStrategy.LATENCY_BASED)
    now = answer(target, ["a", "b"], now=0.0, times=3)
    look(target, ("a", "b"), now=now)
    stats = target.snapshot(now=now)["a"]
    fail(target, "a", now=now)
    assert stats.failures == 0
    out = target.snapshot(now=now)["a"]
    assert dataclasses.asdict(out) == {
        "in_flight": 0,
        "picks": stats.picks,
        "successes": 3,
        "failures": 5,
        "timeouts": 0,
        "cancellations": 0,
        "peak_rtt": 30.0,
        "mean_rtt": pytest.approx(MS),
        "ejected": True,
        "ejected_for": "errors",
        "ejections": 1,
        "ejections_for": {"latency": 0, "errors": 1, "hung": 0},
        "returns": 0,
        "probes": 0,
    }


def test_the_statistics_of_a_cold_endpoint_show_the_prior_of_its_peers() -> None:
    target = balancer()
    now = answer(target, ["a", "b"], now=0.0, rtt=7 * MS)
    target.acquire(("a", "b", "c"), now=now)
    stats = target.snapshot(now=now)["c"]
    assert [stats.peak_rtt, stats.mean_rtt] == pytest.approx([7 * MS, 7 * MS])
    target.update(["d"])
    assert target.snapshot(now=now)["d"].mean_rtt == 0.030
