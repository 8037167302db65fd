"""What is cached of a set of candidates."""

import pytest

from lb_strategies import BalancerOptions
from lb_strategies.endpoint import EndpointState
from lb_strategies.group import Assessment, Group


def group() -> Group:
    return Group(tuple(EndpointState(name, BalancerOptions()) for name in "ab"))


def test_a_new_group_serves_everyone_and_asks_to_be_looked_at() -> None:
    new = group()
    assert new.pool == new.states
    assert not new.checked_at <= 0.0 < new.check_at


def test_an_assessment_is_used_for_the_next_picks() -> None:
    new = group()
    a, b = new.states
    seen = Assessment(median=0.001, hung=(), spared=(), pool=(a,), panic=True, probe=b)
    new.adopt(seen, 1.0, 1.01)
    assert (new.median, new.pool, new.panic, new.probe) == (0.001, (a,), True, b)


def test_a_stale_group_asks_to_be_looked_at() -> None:
    new = group()
    new.checked_at, new.check_at = 0.0, 1.0
    new.stale()
    assert not new.checked_at <= 0.5 < new.check_at


def test_another_unit_scales_the_median_and_makes_stale() -> None:
    new = group()
    new.rescale(40.0)
    assert new.median is None
    new.median, new.checked_at, new.check_at = 0.001, 0.0, 1.0
    new.rescale(40.0)
    assert new.median == pytest.approx(0.040)
    assert not new.checked_at <= 0.5 < new.check_at
