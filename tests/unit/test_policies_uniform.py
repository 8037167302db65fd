"""Uniform choice: exact shares by enumeration."""

from collections import Counter

import pytest

from lb_strategies import BalancerOptions
from lb_strategies.endpoint import EndpointState
from lb_strategies.policies import Uniform

from .scripted import Script, every_draw


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_candidate_has_the_same_share(count: int) -> None:
    states = [EndpointState(index, BalancerOptions()) for index in range(count)]
    rng = every_draw(count * 10)
    counts = Counter(Uniform().choose(states, 0.0, rng).endpoint for _ in range(count * 10))
    assert counts == dict.fromkeys(range(count), 10)


def test_the_edges_of_the_draw_stay_inside() -> None:
    states = [EndpointState(index, BalancerOptions()) for index in range(3)]
    assert Uniform().choose(states, 0.0, Script(0.0)) is states[0]
    assert Uniform().choose(states, 0.0, Script(1.0 - 2.0**-53)) is states[2]
