"""The names a user selects from."""

from enum import Enum

import pytest

from lb_strategies import LoadBalancingStrategy


class Upstream(Enum):
    ROUND_ROBIN = "round_robin"
    SOMETHING_ELSE = "something_else"


@pytest.mark.parametrize("member", list(LoadBalancingStrategy))
def test_a_member_and_its_value_mean_the_same(member: LoadBalancingStrategy) -> None:
    assert LoadBalancingStrategy.parse(member) is member
    assert LoadBalancingStrategy.parse(member.value) is member


def test_a_member_of_another_enum_with_the_same_value_is_accepted() -> None:
    assert LoadBalancingStrategy.parse(Upstream.ROUND_ROBIN) is LoadBalancingStrategy.ROUND_ROBIN


@pytest.mark.parametrize(
    "value", ["fastest", "", "LATENCY_BASED", None, 3, Upstream.SOMETHING_ELSE]
)
def test_an_unknown_name_is_refused_with_the_list_of_valid_ones(value: object) -> None:
    with pytest.raises(ValueError, match=r"unknown load balancing strategy .* valid names are"):
        LoadBalancingStrategy.parse(value)
