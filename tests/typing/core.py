"""What a user writes; only type-checked, with mypy --strict."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from typing import assert_type

from opentelemetry.metrics import MeterProvider

from lb_strategies import (
    BalancerOptions,
    Candidate,
    EndpointStats,
    LoadBalancer,
    LoadBalancerError,
    LoadBalancingStrategy,
    NoEndpointError,
    Outcome,
    Pick,
    Policy,
)
from lb_strategies.telemetry import Instrumentation, instrument
from lb_strategies.testing import (
    ManualClock,
    Simulation,
    SimulationResult,
    check_policy,
    lognormal,
)


def strategies() -> Iterator[LoadBalancer]:
    yield LoadBalancer(LoadBalancingStrategy.LATENCY_BASED)
    yield LoadBalancer("hybrid")
    yield LoadBalancer(
        "boltzmann", options=BalancerOptions(temperature=0.002), rng=random.Random(1)
    )
    yield LoadBalancer(Mine())


def request(balancer: LoadBalancer, clock: ManualClock) -> None:
    pick = balancer.acquire(("a:1", "b:1"), now=clock(), operation="get", exclude={"a:1"})
    assert_type(pick, Pick)
    assert_type(pick.endpoint, Hashable)
    outcome = Outcome.CANCELLED
    try:
        pick.relabel("pipeline", 12)
        outcome = Outcome.SUCCESS
    finally:
        pick.done(outcome, now=clock(), started_at=clock())


def any_candidates(balancer: LoadBalancer) -> None:
    for candidates in (["a"], {"a"}, ("a", 1, ("host", 6379)), iter("ab")):
        assert_type(balancer.choose(candidates, now=0.0, fallback=("c",)), Hashable)
    assert_type(balancer.begin(("host", 6379), now=0.0, units=3), Pick)
    balancer.update(frozenset({"a"}))


def look(balancer: LoadBalancer) -> float:
    stats = balancer.snapshot(now=0.0)
    assert_type(stats, dict[Hashable, EndpointStats])
    assert_type(balancer.strategy, LoadBalancingStrategy | None)
    assert_type(balancer.options, BalancerOptions)
    assert_type([s.ejections_for["hung"] + s.returns for s in stats.values()], list[int])
    return max(s.peak_rtt + s.mean_rtt for s in stats.values() if s.ejected_for is None)


def observe(balancer: LoadBalancer, provider: MeterProvider, clock: ManualClock) -> None:
    instrumentation = instrument(balancer, clock=clock, name="orders", meter_provider=provider)
    assert_type(instrumentation, Instrumentation)
    assert_type(instrumentation.name, str)
    instrumentation.close()
    instrument(balancer)  # type: ignore[call-overload]  # it reads no clock
    instrument(object())  # type: ignore[call-overload]


class Mine:
    """A policy needs no base class."""

    may_starve = True

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        return min(candidates, key=lambda c: (c.load(now), c.peak_rtt(now), c.last_pick))

    def observe(self, candidate: Candidate, rtt: float, success: bool) -> None:
        assert_type(candidate.consecutive_failures, int)


def my_policy_is_one() -> Policy:
    check_policy(Mine, seed=3)
    return Mine()


def simulate() -> float:
    simulation = Simulation(
        LoadBalancer(Mine()),
        {"a": lognormal(0.001), "b": lambda now, rng: (0.0, Outcome.FAILURE)},
        random.Random(1),
    )
    result = simulation.run(seconds=1.0, rate=100.0)
    assert_type(result, SimulationResult)
    return result.percentile(99.0) + result.share("a", since=0.5)


def errors(balancer: LoadBalancer) -> str:
    try:
        balancer.acquire((), now=0.0)
    except NoEndpointError as error:
        root: LoadBalancerError = error
        return str(root)
    return ""


def wrong(balancer: LoadBalancer) -> None:
    balancer.acquire(["a"], 0.0)  # type: ignore[call-arg]  # time is keyword-only
    balancer.acquire(5, now=0.0)  # type: ignore[arg-type]  # no iterable
    balancer.begin(["a"], now=0.0)  # type: ignore[arg-type]  # not hashable
    LoadBalancer(3)  # type: ignore[arg-type]  # no strategy
    LoadBalancer("random", options={"decay": 1.0})  # type: ignore[arg-type]
    BalancerOptions(10.0)  # type: ignore[call-arg]  # options are keyword-only
    balancer.begin("a", now=0.0).done("success", now=1.0)  # type: ignore[arg-type]
