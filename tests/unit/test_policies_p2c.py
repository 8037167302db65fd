"""Exact shares of two (and of d) choices, by enumeration of everything that can be drawn."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction
from math import exp, log

import pytest

from lb_strategies import BalancerOptions, LoadBalancer, LoadBalancingStrategy
from lb_strategies.endpoint import EndpointState
from lb_strategies.policies import PowerOfTwoChoices
from lb_strategies.testing import Simulation, lognormal

from .scripted import MS, Digits, Script, every_draw, exact_shares

MANY: dict[Hashable, int] = dict(zip("abcdefghi", (0, 5, 5, 10, 10, 20, 20, 50, 60), strict=True))

CASES: dict[str, tuple[dict[Hashable, int], dict[Hashable, Fraction]]] = {
    "equilibrium": ({"a": 5, "b": 5, "c": 5}, dict.fromkeys("abc", Fraction(1, 3))),
    "replica set equilibrium": ({"a": 6, "b": 6, "c": 6}, dict.fromkeys("abc", Fraction(1, 3))),
    "two choices": ({"a": 0, "b": 5}, {"a": Fraction(1), "b": Fraction(0)}),
    "three choices": (
        {"a": 3, "b": 6, "c": 20},
        {"a": Fraction(2, 3), "b": Fraction(1, 3), "c": Fraction(0)},
    ),
    "replica set three choices": (
        {"c": 20, "b": 6, "a": 3},
        {"a": Fraction(2, 3), "b": Fraction(1, 3), "c": Fraction(0)},
    ),
    "one least, two tied": (
        {"a": 16, "b": 10, "c": 16},
        {"a": Fraction(1, 6), "b": Fraction(2, 3), "c": Fraction(1, 6)},
    ),
    "two least": (
        {"a": 10, "b": 10, "c": 16},
        {"a": Fraction(1, 2), "b": Fraction(1, 2), "c": Fraction(0)},
    ),
    "many choices": (
        MANY,
        {
            name: Fraction(weight, 72)
            for name, weight in zip("abcdefghi", (16, 13, 13, 9, 9, 5, 5, 2, 0), strict=True)
        },
    ),
}


def record(name: str, *, rtt: float = MS, in_flight: int = 0, last_pick: int = 0) -> EndpointState:
    state = EndpointState(name, BalancerOptions())
    state.learn(rtt, 0.0)
    state.in_flight = in_flight
    state.last_pick = last_pick
    return state


def winner(a: EndpointState, b: EndpointState) -> Hashable:
    """Return who wins in both orders of the draw."""
    policy = PowerOfTwoChoices()
    first, second = (policy.choose(order, 0.0, Script(0.0)).endpoint for order in ((a, b), (b, a)))
    assert first == second
    return first


@pytest.mark.parametrize("name", CASES)
def test_the_share_of_each_endpoint_is_exact(name: str) -> None:
    loads, shares = CASES[name]
    assert exact_shares(loads) == shares
    assert sum(shares.values()) == 1


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 256])
def test_one_draw_gives_each_ordered_pair_of_distinct_endpoints_once(count: int) -> None:
    """Of endpoints in strict order, the k-th best (from 0) wins 2 (n - 1 - k) of n (n - 1)."""
    states = [record(str(index), in_flight=index) for index in range(count)]
    policy, pairs = PowerOfTwoChoices(), count * (count - 1)
    rng = every_draw(pairs)
    wins = Counter(policy.choose(states, 0.0, rng).endpoint for _ in range(pairs))
    assert [wins[str(index)] for index in range(count)] == [
        2 * (count - 1 - index) for index in range(count)
    ]


def test_the_edges_of_the_draw_stay_inside() -> None:
    states = [record(name) for name in "abc"]
    policy = PowerOfTwoChoices()
    for draw in (0.0, 1.0 - 2.0**-53):
        assert policy.choose(states, 0.0, Script(draw)) in states


def test_one_candidate_needs_no_draw() -> None:
    only = record("a")
    assert PowerOfTwoChoices().choose([only], 0.0, Script()) is only


def test_three_choices_take_the_best_of_three() -> None:
    """Of four in strict order: the best is drawn in 3/4 and the second wins the rest."""
    states = [record(name, in_flight=index) for index, name in enumerate("abcd")]
    policy, wins, orders = PowerOfTwoChoices(3), Counter[Hashable](), 0
    for digits in itertools.product(range(4), range(3), range(2)):
        wins[policy.choose(states, 0.0, Digits(*digits)).endpoint] += 1
        orders += 1
    assert {name: Fraction(wins[name], orders) for name in "abcd"} == {
        "a": Fraction(3, 4),
        "b": Fraction(1, 4),
        "c": 0,
        "d": 0,
    }


def test_more_choices_than_candidates_are_all_of_them() -> None:
    states = [record("a", in_flight=1), record("b")]
    assert PowerOfTwoChoices(5).choose(states, 0.0, Digits(0, 0)).endpoint == "b"


def test_within_the_band_the_least_recently_picked_wins() -> None:
    """Means within 1.25: slower by 24 % is a tie, by 26 % is not."""
    recent = record("recent", last_pick=2)
    assert winner(recent, record("slower", rtt=1.24 * MS, last_pick=1)) == "slower"
    assert winner(recent, record("slower", rtt=1.26 * MS, last_pick=1)) == "recent"


def test_a_peak_beyond_its_ratio_breaks_the_tie() -> None:
    """Equal means; a peak of 3.9 x is within the band, one of 4.1 x is not."""
    for ratio, expected in ((3.9, "peaked"), (4.1, "recent")):
        recent, peaked = record("recent", last_pick=2), record("peaked", last_pick=1)
        peaked.peak.value = ratio * MS
        assert winner(recent, peaked) == expected


def test_unequal_loads_are_compared_by_load() -> None:
    """Not by the band: 2 x 1 ms against 1 x 1.9 and 1 x 2.1 ms."""
    busy = record("busy", in_flight=1, last_pick=1)
    assert winner(busy, record("idle", rtt=1.9 * MS, last_pick=2)) == "idle"
    assert winner(busy, record("idle", rtt=2.1 * MS, last_pick=2)) == "busy"


def test_the_ratios_of_the_band_are_options() -> None:
    policy = PowerOfTwoChoices(mean_ratio=exp(1.0), peak_ratio=10.0)
    recent, slower = record("recent", last_pick=2), record("slower", rtt=2.7 * MS, last_pick=1)
    assert policy.choose((recent, slower), 0.0, Script(0.0)) is slower
    assert log(2.7) < 1.0


def test_few_candidates_are_all_compared_when_those_drawn_are_out_of_the_ordinary() -> None:
    """https://github.com/apache/brpc/issues/3340: two slow ones of three are drawn together."""
    states = [record("slow", rtt=20 * MS), record("slower", rtt=30 * MS), record("good")]
    slow_pair = Script(0.0)  # the first two, in this order
    assert PowerOfTwoChoices().choose(states, 0.0, slow_pair).endpoint == "slow"
    assert PowerOfTwoChoices(scan_limit=2).choose(states, 0.0, slow_pair).endpoint == "slow"
    assert PowerOfTwoChoices(scan_limit=3).choose(states, 0.0, slow_pair).endpoint == "good"


def test_no_more_than_two_are_compared_when_the_better_one_is_as_good_as_any() -> None:
    states = [record("busy", in_flight=2), record("busier", in_flight=3), record("idle")]
    states[0].settle(ties=True, usual_to=2 * MS, tie_to=2 * MS)
    assert PowerOfTwoChoices(scan_limit=3).choose(states, 0.0, Script(0.0)).endpoint == "busy"


@pytest.mark.parametrize(("count", "slow"), [(3, 2), (4, 3), (5, 3), (5, 4)])
@pytest.mark.parametrize("workers", [1, 8])
def test_a_majority_of_slow_endpoints_gets_next_to_nothing(
    count: int, slow: int, workers: int
) -> None:
    """The median is slow itself then, so nobody is an outlier; of two drawn a third would be."""
    names = [f"endpoint {index}" for index in range(count)]
    rng = random.Random(1)
    target = LoadBalancer(LoadBalancingStrategy.LATENCY_BASED, rng=random.Random(2))
    simulation = Simulation(target, {name: lognormal(MS / 2) for name in names}, rng)
    simulation.run(seconds=2.0, workers=workers)
    for name in names[:slow]:
        simulation.services[name] = lognormal(20 * MS)
    simulation.run(seconds=1.0, workers=workers)
    result = simulation.run(seconds=5.0, workers=workers)
    assert sum(result.share(name) for name in names[:slow]) < 0.01
