"""The tools for users' own tests: clock, simulation, and its figures."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from lb_strategies import LoadBalancingStrategy, Outcome
from lb_strategies.testing import ManualClock, Service, Simulation, SimulationResult, lognormal

from .scripted import MS, balancer, in_flight


def constant(seconds: float, outcome: Outcome = Outcome.SUCCESS) -> Service:
    return lambda now, rng: (seconds, outcome)


def simulation(strategy: LoadBalancingStrategy = LoadBalancingStrategy.HYBRID) -> Simulation:
    return Simulation(
        balancer(strategy), {"a": constant(0.010), "b": constant(0.010)}, random.Random(1)
    )


def test_a_manual_clock_moves_only_when_told_to() -> None:
    clock = ManualClock(5.0)
    assert (clock(), clock.advance(2.5), clock.advance(0.0), clock()) == (5.0, 7.5, 7.5, 7.5)


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_a_manual_clock_does_not_go_back(seconds: float) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        ManualClock().advance(seconds)


def test_a_lognormal_service_has_its_median_and_succeeds() -> None:
    """1,001 draws with sigma 0.25: the median's standard error is 1.25 x 0.25 / sqrt(1001), 1 %.

    So 4 % is four of them.
    """
    rng = random.Random(1)
    answers = [lognormal(MS)(0.0, rng) for _ in range(1001)]
    assert {outcome for _, outcome in answers} == {Outcome.SUCCESS}
    assert sorted(seconds for seconds, _ in answers)[500] == pytest.approx(MS, rel=0.04)


def test_a_closed_loop_keeps_its_workers_busy_and_finishes_what_it_began() -> None:
    """4 workers x 1 s of 10 ms each: 400 requests, and nothing in flight at the end."""
    run = simulation()
    result = run.run(seconds=1.0, workers=4)
    assert len(result.endpoints) == pytest.approx(400, abs=4)
    assert result.share("a") == pytest.approx(0.5, abs=0.01)
    assert set(in_flight(run.balancer, now=run.clock.now).values()) == {0}
    assert run.clock.now >= 1.0


def test_an_open_loop_arrives_at_its_rate_whatever_the_latency() -> None:
    """Poisson, 500/s for 10 s: 5,000 with a standard deviation of 71; 4 of them are 283."""
    run = simulation()
    run.services["b"] = constant(3.0, Outcome.TIMEOUT)
    result = run.run(seconds=10.0, rate=500.0)
    assert len(result.endpoints) == pytest.approx(5000, abs=283)
    assert result.outcomes.count(Outcome.TIMEOUT) == result.endpoints.count("b")
    assert set(in_flight(run.balancer, now=run.clock.now).values()) == {0}


def test_a_run_goes_on_where_the_last_one_ended() -> None:
    run = simulation()
    run.run(seconds=1.0)
    later = run.run(seconds=1.0)
    assert min(later.started_at) >= 1.0


def test_equal_seeds_run_equally() -> None:
    def run() -> list[Any]:
        noisy = Simulation(
            balancer(), {"a": lognormal(MS), "b": lognormal(2 * MS)}, random.Random(3), now=7.0
        )
        result = noisy.run(seconds=0.5, workers=3)
        return [result.endpoints, result.latencies]

    assert run() == run()


def test_a_share_counts_from_when_it_is_asked_to() -> None:
    result = SimulationResult(["a", "a", "b"], [0.0, 1.0, 2.0], [1.0] * 3, [Outcome.SUCCESS] * 3)
    assert result.share("a") == pytest.approx(2 / 3)
    assert result.share("a", since=1.0) == 0.5
    assert result.share("a", since=9.0) == 0.0


def test_the_worst_window_is_the_most_one_sided_one() -> None:
    result = SimulationResult(endpoints=list("abababbbba"))
    assert result.worst_window_share(4) == 1.0
    assert result.worst_window_share(10) == 0.6
    assert result.worst_window_share(11) == 0.0


def test_a_percentile_is_the_latency_that_so_many_kept_to() -> None:
    latencies = [float(value) for value in range(100)]
    result = SimulationResult(
        ["a"] * 100, latencies, list(reversed(latencies)), [Outcome.SUCCESS] * 100
    )
    assert result.percentile(0.0) == 0.0
    assert result.percentile(50.0) == 50.0
    assert result.percentile(100.0) == 99.0
    assert result.percentile(100.0, since=50.0) == 49.0
