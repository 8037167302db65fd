"""Even rotation, whatever comes and goes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable

import pytest

from lb_strategies import BalancerOptions, LoadBalancingStrategy, Outcome
from lb_strategies.endpoint import EndpointState
from lb_strategies.policies import Rotation

from .scripted import MS, answer, balancer, ejected, fail, look

ABC = ("a", "b", "c")
ROTATING = [LoadBalancingStrategy.ROUND_ROBIN, LoadBalancingStrategy.HYBRID]


def record(name: str, last_pick: int, *, warm: bool = True, in_flight: int = 0) -> EndpointState:
    state = EndpointState(name, BalancerOptions())
    state.last_pick, state.in_flight = last_pick, in_flight
    if warm:
        state.learn(MS, 0.0)
    return state


@pytest.mark.parametrize("strategy", ROTATING)
def test_every_round_visits_everyone_once_in_the_same_order(
    strategy: LoadBalancingStrategy,
) -> None:
    target = balancer(strategy)
    now, chosen = 0.0, []
    for _ in range(30):
        pick = target.acquire(ABC, now=now)
        now += MS
        pick.done(Outcome.SUCCESS, now=now)
        chosen.append(pick.endpoint)
    assert set(chosen[:3]) == set(ABC)
    assert chosen == chosen[:3] * 10


def test_the_first_round_is_in_random_order() -> None:
    """Six orders of three; 60 clients that all start alike would be 6^-59."""
    first = {
        tuple(target.acquire(ABC, now=0.0).endpoint for _ in range(3))
        for target in (balancer(LoadBalancingStrategy.ROUND_ROBIN, seed=s) for s in range(60))
    }
    assert len(first) == 6


def test_an_endpoint_that_leaves_does_not_disturb_the_others() -> None:
    target = balancer(LoadBalancingStrategy.ROUND_ROBIN)
    for index in range(31):
        target.acquire(ABC, now=index * MS)
    counts = Counter(target.acquire(("a", "c"), now=1.0).endpoint for _ in range(10))
    assert counts == {"a": 5, "c": 5}


def test_the_stock_rotation_visits_failing_endpoints_too() -> None:
    target = balancer(LoadBalancingStrategy.ROUND_ROBIN)
    now = answer(target, ABC, now=0.0)
    fail(target, "a", now=now, times=50)
    counts = Counter(target.acquire(ABC, now=now).endpoint for _ in range(30))
    assert counts == {"a": 10, "b": 10, "c": 10}


def test_the_hybrid_rotates_over_the_healthy_ones() -> None:
    target = balancer(LoadBalancingStrategy.HYBRID)
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "a", now=now)
    assert ejected(target, now=now) == {"a"}
    counts = Counter(target.acquire(ABC, now=now).endpoint for _ in range(30))
    assert counts == {"b": 15, "c": 15}


def test_a_busy_endpoint_without_an_answer_is_left_alone() -> None:
    states = [record("new", 1, warm=False, in_flight=1), record("b", 3), record("c", 2)]
    assert Rotation().choose(states, 0.0, random.Random(1)).endpoint == "c"
    assert Rotation(ignores_health=True).choose(states, 0.0, random.Random(1)).endpoint == "new"


def test_when_all_wait_for_their_first_answer_they_share() -> None:
    states = [record(name, index + 1, warm=False, in_flight=1) for index, name in enumerate("ab")]
    assert Rotation().choose(states, 0.0, random.Random(1)).endpoint == "a"


def test_an_endpoint_never_picked_and_not_busy_goes_first() -> None:
    counts: Counter[Hashable] = Counter()
    states = [record("a", 5), record("b", 0), record("c", 0), record("d", 0, in_flight=1)]
    for seed in range(100):
        counts[Rotation().choose(states, 0.0, random.Random(seed)).endpoint] += 1
    assert set(counts) == {"b", "c"}


def test_never_picked_and_all_busy_is_served_all_the_same() -> None:
    states = [record("a", 5), record("b", 0, in_flight=1)]
    assert Rotation().choose(states, 0.0, random.Random(1)).endpoint == "b"
