"""Test your policy, or code that uses a balancer, without servers and without waiting.

`ManualClock` is moved by hand, `Simulation` drives a `LoadBalancer` in virtual time against
endpoints that are functions, and `check_policy` is the conformance check that the built-in
policies pass; run it on your own.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from .balancer import LoadBalancer
from .endpoint import EndpointState
from .membership import Endpoint
from .options import BalancerOptions
from .pick import Outcome, Pick
from .policy import Policy

Service: TypeAlias = Callable[[float, random.Random], tuple[float, Outcome]]
"""What an endpoint does: (now, rng) -> (seconds until the answer, how it ends)."""


class ManualClock:
    """A monotonic clock that only moves when told to.

    Args:
        now: where it starts, in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time, in seconds."""
        return self.now

    def advance(self, seconds: float) -> float:
        """Move on by `seconds` >= 0 and return the new time.

        Raises:
            ValueError: `seconds` is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds must not be negative, got {seconds!r}")
        self.now += seconds
        return self.now


def lognormal(median: float, sigma: float = 0.25) -> Service:
    """Return a service that always succeeds, in lognormal time around `median` seconds."""
    return lambda now, rng: (median * rng.lognormvariate(0.0, sigma), Outcome.SUCCESS)


@dataclass(slots=True)
class SimulationResult:
    """What happened: one entry per finished request, in the order of their ends."""

    endpoints: list[Endpoint] = field(default_factory=list)
    started_at: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def share(self, endpoint: Endpoint, *, since: float = float("-inf")) -> float:
        """Return the part in [0, 1] of the requests started since then that `endpoint` got."""
        chosen = [e for e, at in zip(self.endpoints, self.started_at, strict=True) if at >= since]
        return chosen.count(endpoint) / len(chosen) if chosen else 0.0

    def worst_window_share(self, length: int) -> float:
        """Return the largest share any endpoint had in any `length` requests in a row."""
        counts: Counter[Endpoint] = Counter()
        worst = 0
        for index, endpoint in enumerate(self.endpoints):
            counts[endpoint] += 1
            if index >= length:
                counts[self.endpoints[index - length]] -= 1
            if index == length - 1:
                worst = max(counts.values())
            elif index >= length:
                worst = max(worst, counts[endpoint])  # no other count has grown
        return worst / length

    def percentile(self, percent: float, *, since: float = float("-inf")) -> float:
        """Return the latency in seconds that `percent` in [0, 100] of the requests kept to."""
        ordered = sorted(
            seconds
            for seconds, at in zip(self.latencies, self.started_at, strict=True)
            if at >= since
        )
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100.0))]


class Simulation:
    """Drives a balancer in virtual time.

    Args:
        balancer: the one under test.
        services: what each endpoint does; may be changed between runs.
        rng: decides the service times.
        now: where virtual time starts, in seconds.
    """

    def __init__(
        self,
        balancer: LoadBalancer,
        services: Mapping[Endpoint, Service],
        rng: random.Random,
        *,
        now: float = 0.0,
    ) -> None:
        self.balancer = balancer
        self.services = dict(services)
        self.clock = ManualClock(now)
        self._rng = rng
        self._order = count()  # two events at the same time keep their order
        self._events: list[tuple[float, int, Pick | None, Outcome]] = []

    def run(
        self, *, seconds: float, workers: int = 1, rate: float | None = None
    ) -> SimulationResult:
        """Run for `seconds` of virtual time and let what is in flight finish.

        Args:
            seconds: how long new requests are started, > 0.
            workers: closed loop: how many requests are kept in flight, >= 1.
            rate: if given, an open loop of Poisson arrivals a second instead, > 0.
        """
        result = SimulationResult()
        end = self.clock.now + seconds
        for _ in range(1 if rate else workers):
            self._push(self.clock.now, None, Outcome.SUCCESS)
        while self._events:
            at, _, pick, outcome = heapq.heappop(self._events)
            self.clock.now = at
            if pick is not None:
                pick.done(outcome, now=at)
                result.endpoints.append(pick.endpoint)
                result.started_at.append(pick.started_at)
                result.latencies.append(at - pick.started_at)
                result.outcomes.append(outcome)
            if at >= end or (rate and pick is not None):
                continue
            if rate:
                self._push(at + self._rng.expovariate(rate), None, Outcome.SUCCESS)
            self._start(at)
        return result

    def _start(self, now: float) -> None:
        pick = self.balancer.acquire(tuple(self.services), now=now)
        latency, outcome = self.services[pick.endpoint](now, self._rng)
        self._push(now + latency, pick, outcome)

    def _push(self, at: float, pick: Pick | None, outcome: Outcome) -> None:
        heapq.heappush(self._events, (at, next(self._order), pick, outcome))


def check_policy(make: Callable[[], Policy], *, seed: int = 0) -> None:
    """Check that what `make` returns is a policy that a balancer can use.

    It must return one of its candidates, one candidate included; leave them untouched; give
    an equal share to equal endpoints within a factor of two; come back to an endpoint that
    was away; and, unless it ignores health, leave one that fails.

    Args:
        make: returns a fresh instance; called several times.
        seed: of all randomness in the check.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    _check_choice(make(), random.Random(seed))
    _check_equal_shares(make(), random.Random(seed))
    _check_failing_endpoint(make(), random.Random(seed))


def _check_choice(policy: Policy, rng: random.Random) -> None:
    options = BalancerOptions()
    states = [EndpointState(name, options) for name in "abcde"]
    for index, state in enumerate(states):
        state.learn(0.001 * (index + 1), 0.0)
        state.in_flight = index % 3
    for size in range(1, len(states) + 1):
        candidates: Sequence[EndpointState] = states[:size]
        before = [_fingerprint(state) for state in candidates]
        for _ in range(50):
            chosen = policy.choose(candidates, 1.0, rng)
            assert any(chosen is c for c in candidates), (
                f"choose returned {chosen!r}, which is none of its {size} candidates"
            )
        after = [_fingerprint(state) for state in candidates]
        assert before == after, "choose changed a candidate"


def _fingerprint(state: EndpointState) -> tuple[object, ...]:
    return (
        state.in_flight,
        state.last_pick,
        state.peak.value,
        state.peak.updated_at,
        state.mean.log,
        state.samples,
        state.consecutive_failures,
    )


def _check_equal_shares(policy: Policy, rng: random.Random) -> None:
    names = ("a", "b", "c")
    simulation = Simulation(
        LoadBalancer(policy, rng=rng), {name: lognormal(0.001) for name in names}, rng
    )
    result = simulation.run(seconds=10.0, workers=4)
    for name in names:
        share = result.share(name)
        assert 1 / 6 <= share <= 2 / 3, f"{name}, one of three equals, got {share:.0%}"


def _check_failing_endpoint(policy: Policy, rng: random.Random) -> None:
    healthy = lognormal(0.001)
    balancer = LoadBalancer(policy, rng=rng)
    simulation = Simulation(balancer, {"a": healthy, "b": healthy, "c": healthy}, rng)
    simulation.run(seconds=2.0)
    simulation.services["c"] = lambda now, rng: (0.0001, Outcome.FAILURE)
    failing = simulation.run(seconds=10.0).share("c", since=simulation.clock.now - 8.0)
    if not getattr(policy, "ignores_health", False):
        assert failing <= 0.01, f"an endpoint that only fails still got {failing:.1%}"
    simulation.services["c"] = healthy
    healed = simulation.run(seconds=30.0).share("c", since=simulation.clock.now - 15.0)
    assert healed >= 1 / 6, f"a healed endpoint got only {healed:.1%} of a third"
    in_flight = [s.in_flight for s in balancer.snapshot(now=simulation.clock.now).values()]
    assert in_flight == [0, 0, 0], f"in flight at the end: {in_flight}"
