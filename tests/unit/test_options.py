"""A bad option is an error at once, naming the option and the value."""

import dataclasses
import math
from typing import Any

import pytest

from lb_strategies import BalancerOptions

FLOATS = [f.name for f in dataclasses.fields(BalancerOptions) if f.type is float]
INTEGERS = [f.name for f in dataclasses.fields(BalancerOptions) if f.type is int]
RATIOS = [
    "fairness_mean_ratio",
    "fairness_peak_ratio",
    "rho",
    "hung_ratio",
    "readmit_ratio",
    "explore_ratio",
]
MAY_BE_ZERO = ["fairness_slack", "outlier_floor", "hung_floor", "probe_jitter"]


def options(**values: Any) -> BalancerOptions:
    return BalancerOptions(**values)


def test_the_defaults_are_valid_and_frozen() -> None:
    defaults = options()
    assert (defaults.decay, defaults.rho, defaults.choices) == (10.0, 2.0, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        defaults.decay = 1.0  # type: ignore[misc]  # what this test is about


def test_every_field_is_checked_here() -> None:
    assert len(FLOATS) + len(INTEGERS) + 1 == len(dataclasses.fields(BalancerOptions))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be finite, got (nan|-?inf)"):
        options(**{name: value})


@pytest.mark.parametrize("name", FLOATS)
def test_a_negative_number_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must .*, got -1"):
        options(**{name: -1.0})


@pytest.mark.parametrize("name", sorted(set(FLOATS) - set(MAY_BE_ZERO)))
def test_zero_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be greater than [01], got 0"):
        options(**{name: 0})


@pytest.mark.parametrize("name", MAY_BE_ZERO)
def test_a_floor_or_a_spread_may_be_zero(name: str) -> None:
    assert getattr(options(**{name: 0}), name) == 0


@pytest.mark.parametrize("name", RATIOS)
def test_a_ratio_must_be_greater_than_one(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be greater than 1, got 1"):
        options(**{name: 1.0})


@pytest.mark.parametrize("name", ["max_ejected", "min_success_rate", "probe_jitter"])
def test_a_share_must_be_less_than_one(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be less than 1, got 1"):
        options(**{name: 1})


def test_a_weight_may_be_one_and_no_more() -> None:
    assert options(boltzmann_weight=1).boltzmann_weight == 1
    with pytest.raises(ValueError, match="boltzmann_weight must be at most 1"):
        options(boltzmann_weight=1.01)


@pytest.mark.parametrize("name", INTEGERS)
def test_a_count_must_be_an_integer_and_large_enough(name: str) -> None:
    least = {"choices": 2, "scan_limit": 0}.get(name, 1)
    assert getattr(options(**{name: least}), name) == least
    with pytest.raises(ValueError, match=f"{name} must be at least {least}, got {least - 1}"):
        options(**{name: least - 1})
    with pytest.raises(TypeError, match=f"{name} must be an int"):
        options(**{name: 2.5})


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("value", ["1", None, True, 1j])
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        options(**{name: value})


def test_normalize_is_a_bool() -> None:
    assert options(normalize=False).normalize is False
    with pytest.raises(TypeError, match="normalize must be a bool, got 1"):
        options(normalize=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"failure_cap": 1.0}, r"failure_cap must be at least failure_penalty \(5.0\), got 1.0"),
        ({"max_probe_interval": 0.5}, "max_probe_interval must be at least probe_interval"),
        ({"rho": 1.4}, "rho must be at least readmit_ratio"),
    ],
)
def test_two_options_in_the_wrong_order_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options(**values)
