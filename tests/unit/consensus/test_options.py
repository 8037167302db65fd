"""Options that make no sense are refused where they are written."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lb_strategies import BalancerOptions, ConsensusOptions

SECONDS = [
    "poll_interval",
    "poll_timeout",
    "attempt_timeout",
    "dropped_delay",
    "backoff",
    "max_backoff",
]


def options_with(name: str, value: Any) -> ConsensusOptions:
    return ConsensusOptions(**{name: value})


def test_the_read_pool_has_a_floor_and_needs_five_samples() -> None:
    options = ConsensusOptions().balancer
    assert (options.rho, options.outlier_floor, options.min_samples) == (2.0, 0.001, 5)


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [0, -0.5])
def test_a_duration_is_more_than_nothing(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be greater than 0, got {value!r}"):
        options_with(name, value)


@pytest.mark.parametrize("name", [*SECONDS, "poll_jitter", "retry_for"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_duration_is_a_finite_number(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be finite, got {value!r}"):
        options_with(name, value)


@pytest.mark.parametrize("name", ["poll_jitter", "retry_for"])
def test_some_may_be_zero_but_not_less(name: str) -> None:
    assert getattr(options_with(name, 0), name) == 0
    with pytest.raises(ValueError, match=f"^{name} must not be negative, got -1"):
        options_with(name, -1)


@pytest.mark.parametrize("name", ["cold_samples", "max_misses", "backoff"])
@pytest.mark.parametrize("value", ["1", None, True])
def test_a_number_is_a_number(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be a number, got {value!r}"):
        options_with(name, value)


@pytest.mark.parametrize(("name", "least"), [("cold_samples", 0), ("max_misses", 1)])
def test_counts_are_whole_and_not_too_small(name: str, least: int) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be an int, got 2.0"):
        options_with(name, 2.0)
    with pytest.raises(ValueError, match=f"^{name} must be at least {least}, got {least - 1}"):
        options_with(name, least - 1)
    assert getattr(options_with(name, least), name) == least


def test_jitter_cannot_be_the_whole_interval() -> None:
    with pytest.raises(ValueError, match=r"^poll_jitter must be less than 1, got 1\.0"):
        ConsensusOptions(poll_jitter=1.0)


def test_pauses_do_not_shrink() -> None:
    with pytest.raises(ValueError, match=r"^max_backoff must be at least backoff \(0\.5\), got 0"):
        ConsensusOptions(backoff=0.5, max_backoff=0.25)


@pytest.mark.parametrize("value", [None, {}, "fast"])
def test_the_read_pools_options_are_a_balancers(value: Any) -> None:
    with pytest.raises(TypeError, match="balancer must be a BalancerOptions, got"):
        ConsensusOptions(balancer=value)
    assert ConsensusOptions(balancer=BalancerOptions()).balancer == BalancerOptions()
