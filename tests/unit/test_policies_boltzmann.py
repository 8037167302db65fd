"""Softmax over latency: the probabilities are exact, and failures count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from math import exp

import pytest

from lb_strategies import BalancerOptions, LoadBalancingStrategy, Outcome
from lb_strategies.endpoint import EndpointState
from lb_strategies.policies import Boltzmann

from .scripted import MS, Script, answer, balancer, closed_loop, every_draw, look


def records(*names: str) -> list[EndpointState]:
    return [EndpointState(name, BalancerOptions()) for name in names]


def test_a_temperature_more_divides_the_probability_by_e() -> None:
    policy, states = Boltzmann(temperature=MS), records("a", "b", "c")
    for state, rtt in zip(states, (MS, 2 * MS, 4 * MS), strict=True):
        policy.observe(state, rtt, True)
    assert policy.weights(states) == pytest.approx([1.0, exp(-1.0), exp(-3.0)])


def test_the_draw_has_the_stated_probabilities() -> None:
    """Weights 1 and 1/e: 0.731 and 0.269 of 10,000 evenly spread draws, to one draw."""
    policy, states = Boltzmann(temperature=MS), records("a", "b")
    for state, rtt in zip(states, (MS, 2 * MS), strict=True):
        policy.observe(state, rtt, True)
    rng = every_draw(10_000)
    counts = Counter(policy.choose(states, 0.0, rng).endpoint for _ in range(10_000))
    assert counts["a"] == pytest.approx(10_000 / (1 + exp(-1.0)), abs=1)


def test_the_end_of_the_range_is_the_last_candidate() -> None:
    """A product may round up to the sum of all weights; then no edge is above it."""
    states = records("a", "b")
    assert Boltzmann().choose(states, 0.0, Script(1.0)) is states[-1]


def test_hours_of_latency_underflow_to_zero_and_not_to_an_error() -> None:
    policy, states = Boltzmann(temperature=MS), records("a", "b")
    policy.observe(states[0], 1e4, True)
    policy.observe(states[1], 2e4, True)
    assert policy.weights(states) == [1.0, 0.0]


def test_an_endpoint_without_an_answer_starts_at_the_prior() -> None:
    policy, states = Boltzmann(temperature=MS), records("a", "b")
    policy.observe(states[0], 29 * MS, True)
    assert policy.weights(states) == pytest.approx([1.0, exp(-1.0)])


def test_a_failure_counts_as_ten_temperatures_slower() -> None:
    policy, states = Boltzmann(temperature=MS, weight=1.0), records("a", "b")
    for state in states:
        state.learn(MS, 0.0)
        policy.observe(state, MS, True)
    for _ in range(100):
        policy.observe(states[1], 30.0, False)
        assert policy.weights(states) == pytest.approx([1.0, exp(-10.0)])


def test_a_failure_makes_nobody_faster() -> None:
    policy, states = Boltzmann(temperature=MS), records("a", "b")
    for state in states:
        state.learn(MS, 0.0)
        policy.observe(state, 50 * MS, True)
    policy.observe(states[1], 0.1 * MS, False)
    assert policy.weights(states) == pytest.approx([1.0, 1.0])


def test_a_first_failure_counts_from_the_prior() -> None:
    policy, states = Boltzmann(temperature=MS), records("a", "b")
    policy.observe(states[1], 30.0, False)
    assert policy.weights(states) == pytest.approx([1.0, exp(-10.0)])


def test_more_than_three_failures_in_a_row_are_next_to_never_chosen() -> None:
    policy, states = Boltzmann(temperature=MS), records("a", "b")
    states[1].consecutive_failures = 3
    assert policy.weights(states) == pytest.approx([1.0, 1.0])
    states[1].consecutive_failures = 4
    assert policy.weights(states) == pytest.approx([1.0, 1e-9])


def test_a_fast_endpoint_that_fails_does_not_drown_slow_ones_that_work() -> None:
    """1 ms failing beside 50 ms: against its average, e^-49 would be less than its 1e-9."""
    policy, states = Boltzmann(temperature=MS), records("near", "far")
    policy.observe(states[0], MS, True)
    policy.observe(states[1], 50 * MS, True)
    states[0].consecutive_failures = 4
    assert policy.weights(states) == pytest.approx([1e-9, 1.0])


def test_when_all_fail_all_are_equal() -> None:
    policy, states = Boltzmann(), records("a", "b")
    for state in states:
        state.consecutive_failures = 9
    first, second = policy.weights(states)
    assert first == second > 0


def test_a_failing_endpoint_is_seen_to_heal() -> None:
    """Its average is at most ten temperatures up; it is back 15 s after it healed."""
    target = balancer(LoadBalancingStrategy.BOLTZMANN)
    endpoints = ("a", "b", "c")
    now = answer(target, endpoints, now=0.0)
    look(target, endpoints, now=now)
    is_well = False

    def service(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
        return MS, Outcome.FAILURE if endpoint == "a" and not is_well else Outcome.SUCCESS

    sick, now = closed_loop(target, endpoints, service, now=now, picks=5000)
    assert sick["a"] <= 20
    is_well = True
    _, now = closed_loop(target, endpoints, service, now=now, picks=15_000)
    healed, _ = closed_loop(target, endpoints, service, now=now, picks=5000)
    assert healed["a"] >= 1000


def test_a_slow_endpoint_is_seen_to_heal() -> None:
    """50 ms are 50 temperatures; at 0.7 per sample and one a second, 8 s bring it to three."""
    target = balancer(LoadBalancingStrategy.BOLTZMANN)
    endpoints = ("a", "b", "c")
    slow = 50 * MS

    def service(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
        return slow if endpoint == "a" else MS, Outcome.SUCCESS

    sick, now = closed_loop(target, endpoints, service, now=0.0, picks=10_000)
    assert sick["a"] <= 20
    slow = MS
    _, now = closed_loop(target, endpoints, service, now=now, picks=25_000)
    healed, _ = closed_loop(target, endpoints, service, now=now, picks=3000)
    assert healed["a"] >= 500


def test_a_record_that_is_gone_is_forgotten() -> None:
    policy, states = Boltzmann(), records("a")
    policy.observe(states[0], MS, True)
    assert len(policy._averages) == 1
    states.clear()
    assert len(policy._averages) == 0
