"""Balancers in a known state, and a generator that is told what to draw."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction

from lb_strategies import BalancerOptions, LoadBalancer, LoadBalancingStrategy, Outcome

MS = 0.001


class Script(random.Random):
    """Draws the numbers it was made with, over and over."""

    def __new__(cls, *draws: float) -> Script:
        return super().__new__(cls)

    def __init__(self, *draws: float) -> None:
        super().__init__(0)
        self._draws = draws
        self._next = 0

    def random(self) -> float:
        """Return the next number of the script."""
        self._next += 1
        return self._draws[(self._next - 1) % len(self._draws)]


class Digits(random.Random):
    """Answers every "one of n" with the next digit it was made with; each must be below n."""

    def __new__(cls, *digits: int) -> Digits:
        return super().__new__(cls)

    def __init__(self, *digits: int) -> None:
        super().__init__(0)
        self._left = list(digits)

    def getrandbits(self, k: int, /) -> int:
        """Return the next digit."""
        return self._left.pop(0)


def every_draw(parts: int) -> Script:
    """Return a generator that draws the middle of each of `parts` equal parts of [0, 1)."""
    return Script(*((part + 0.5) / parts for part in range(parts)))


def balancer(
    strategy: LoadBalancingStrategy = LoadBalancingStrategy.LATENCY_BASED,
    *,
    seed: int = 1,
    options: BalancerOptions | None = None,
) -> LoadBalancer:
    """Return a balancer that always draws the same."""
    return LoadBalancer(strategy, options=options, rng=random.Random(seed))


def answer(
    target: LoadBalancer,
    endpoints: Iterable[Hashable],
    *,
    now: float,
    rtt: float = MS,
    times: int = 10,
    operation: Hashable = None,
) -> float:
    """Let each endpoint answer `times` times in `rtt` seconds; return when the last one ended."""
    for endpoint in endpoints:
        for _ in range(times):
            pick = target.begin(endpoint, now=now, operation=operation)
            now += rtt
            pick.done(Outcome.SUCCESS, now=now)
    return now


def fail(
    target: LoadBalancer,
    endpoint: Hashable,
    *,
    now: float,
    times: int = 5,
    outcome: Outcome = Outcome.FAILURE,
) -> None:
    """Let `endpoint` fail at once, so often."""
    for _ in range(times):
        target.begin(endpoint, now=now).done(outcome, now=now)


def look(target: LoadBalancer, endpoints: tuple[Hashable, ...], *, now: float) -> Hashable:
    """Make the balancer look at the group, by a pick that teaches nothing."""
    pick = target.acquire(endpoints, now=now)
    pick.done(Outcome.REDIRECT, now=now)
    return pick.endpoint


def ejected(target: LoadBalancer, *, now: float) -> set[Hashable]:
    """Return the endpoints that are out of the pool."""
    return {endpoint for endpoint, s in target.snapshot(now=now).items() if s.ejected}


def in_flight(target: LoadBalancer, *, now: float) -> dict[Hashable, int]:
    """Return how many requests are in flight on each endpoint."""
    return {endpoint: s.in_flight for endpoint, s in target.snapshot(now=now).items()}


def closed_loop(
    target: LoadBalancer,
    endpoints: tuple[Hashable, ...],
    service: Callable[[Hashable, float], tuple[float, Outcome]],
    *,
    now: float,
    picks: int,
) -> tuple[Counter[Hashable], float]:
    """One worker makes `picks` requests one after the other; return the counts and the time."""
    counts: Counter[Hashable] = Counter()
    for _ in range(picks):
        pick = target.acquire(endpoints, now=now)
        seconds, outcome = service(pick.endpoint, now)
        now += seconds
        pick.done(outcome, now=now)
        counts[pick.endpoint] += 1
    return counts, now


def exact_shares(loads: Mapping[Hashable, int], *, rtt: float = 0.035) -> dict[Hashable, Fraction]:
    """Return each endpoint's exact probability, given how many requests each has in flight.

    All have answered equally fast, and no more than two are compared. A choice of two of n draws
    one number, which decides among the n x (n - 1) ordered pairs, so drawing the middle of each
    part meets every pair once.
    """
    pairs = len(loads) * (len(loads) - 1)
    target = LoadBalancer(
        LoadBalancingStrategy.LATENCY_BASED,
        options=BalancerOptions(scan_limit=0),
        rng=every_draw(pairs),
    )
    now = answer(target, loads, now=0.0, rtt=rtt)
    for endpoint, requests in loads.items():
        for _ in range(requests):
            target.begin(endpoint, now=now)
    endpoints = tuple(loads)
    counts = Counter(target.choose(endpoints, now=now) for _ in range(pairs))
    return {endpoint: Fraction(counts[endpoint], pairs) for endpoint in endpoints}
