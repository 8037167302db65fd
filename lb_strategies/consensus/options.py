"""The tunables of routing in a leader-based store."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Final

from ..options import BalancerOptions

READ_POOL: Final = BalancerOptions(min_samples=5, outlier_floor=0.001)
"""A member is slow above max(2 x median, median + 1 ms), seen in five reads: without the floor, a
healthy member on a fast network is soon out by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusOptions:
    """Options of a client of a leader-based store; validated here, once. Durations are seconds.

    Args:
        balancer: of the read pool.
        cold_samples: how many first reads of a member teach nothing, an int >= 0: they pay for
            connections and caches.
        poll_interval: time between two polls of a member, > 0. Terms in answers tell of most
            changes sooner; polls find the members that do not answer at all.
        poll_timeout: how long a poll may take, > 0.
        poll_jitter: relative random spread of the interval, in [0, 1).
        max_misses: polls missed in a row that put a member out, an int >= 1.
        attempt_timeout: how long a read may take on one member before another one is asked,
            if the caller allows more, > 0; ten times as long as such reads take, if that is more.
        dropped_delay: pause before a dropped proposal is sent again, > 0. One election tick.
        backoff: pause after every member has been tried, > 0; doubles each time ...
        max_backoff: ... up to this, >= `backoff`.
        retry_for: how long an operation that cannot have been executed is tried again, >= 0; the
            caller's own time-out, if shorter, is what counts.

    Raises:
        ValueError: a value is outside its range, NaN or infinite.
        TypeError: a value is of another type.
    """

    balancer: BalancerOptions = field(default=READ_POOL)
    cold_samples: int = 3
    poll_interval: float = 0.25
    poll_timeout: float = 0.5
    poll_jitter: float = 0.1
    max_misses: int = 2
    attempt_timeout: float = 0.5
    dropped_delay: float = 0.02
    backoff: float = 0.025
    max_backoff: float = 0.25
    retry_for: float = 5.0

    def __post_init__(self) -> None:
        if not isinstance(self.balancer, BalancerOptions):
            raise TypeError(f"balancer must be a BalancerOptions, got {self.balancer!r}")
        for option in fields(self):
            if option.name != "balancer":
                _check(option.name, getattr(self, option.name))
        if self.max_backoff < self.backoff:
            raise ValueError(
                f"max_backoff must be at least backoff ({self.backoff!r}), got {self.max_backoff!r}"
            )


_INTEGERS: Final = {"cold_samples": 0, "max_misses": 1}
_MAY_BE_ZERO: Final = {"poll_jitter", "retry_for"}


def _check(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if name in _INTEGERS:
        if not isinstance(value, int):
            raise TypeError(f"{name} must be an int, got {value!r}")
        if value < _INTEGERS[name]:
            raise ValueError(f"{name} must be at least {_INTEGERS[name]}, got {value!r}")
        return
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        least = "not be negative" if name in _MAY_BE_ZERO else "be greater than 0"
        raise ValueError(f"{name} must {least}, got {value!r}")
    if name == "poll_jitter" and value >= 1:
        raise ValueError(f"{name} must be less than 1, got {value!r}")
