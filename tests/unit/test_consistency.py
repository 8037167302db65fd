"""How fresh an answer has to be, by name."""

import pytest

from lb_strategies import ReadConsistency


@pytest.mark.parametrize("member", list(ReadConsistency))
def test_a_member_and_its_value_mean_the_same(member: ReadConsistency) -> None:
    assert ReadConsistency.parse(member) is member
    assert ReadConsistency.parse(member.value) is member


@pytest.mark.parametrize("value", ["eventual", "", "STRONG", None, 3])
def test_an_unknown_name_is_refused_with_the_list_of_valid_ones(value: object) -> None:
    with pytest.raises(ValueError, match=r"unknown read consistency .* strong, causal, relaxed"):
        ReadConsistency.parse(value)
