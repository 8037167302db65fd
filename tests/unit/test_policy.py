"""What is a policy, and whether the balancer's record is what a policy is promised to see."""

import pytest

from lb_strategies import BalancerOptions, Candidate, LoadBalancer, Policy
from lb_strategies.endpoint import EndpointState
from lb_strategies.policies import Uniform


@pytest.mark.parametrize("thing", [object(), "p2c", None, lambda candidates, now, rng: None])
def test_what_cannot_choose_is_not_a_policy(thing: object) -> None:
    assert not isinstance(thing, Policy)


def test_what_can_choose_is_a_policy() -> None:
    assert isinstance(Uniform(), Policy)


def test_a_record_has_everything_a_policy_is_promised() -> None:
    record: Candidate = EndpointState("a", BalancerOptions())
    seen = (
        record.endpoint,
        record.in_flight,
        record.last_pick,
        record.consecutive_failures,
        record.is_cold,
        record.peak_rtt(0.0),
        record.load(0.0),
    )
    assert seen == ("a", 0, 0, 0, True, 0.030, 0.030)
    assert record.mean_rtt == pytest.approx(0.030)


@pytest.mark.parametrize("attribute", ["ignores_health", "may_starve", "observe"])
def test_the_optional_attributes_are_optional(attribute: str) -> None:
    class Plain:
        choose = Uniform().choose

    assert not hasattr(Plain(), attribute)
    assert LoadBalancer(Plain()).acquire(("a",), now=0.0).endpoint == "a"
