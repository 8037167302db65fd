"""Telling cheap operations from dear ones, so that a range scan does not condemn an endpoint.

Each latency is divided by what its kind of operation usually costs, relative to the most
common kind: the estimates are then seconds *of the most common operation*, and with a single
kind they are plain latency. Dubbo keeps its statistics by method for the same reason; nobody
we found also goes by batch size.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from math import exp, log
from statistics import median_low
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .endpoint import EndpointState

_SLOW_WEIGHT: Final = 0.05  # the baseline must not follow an endpoint into its bad patch
_EAGER_SAMPLES: Final = 16  # until then each sample may move the baseline a lot
_REVIEW_INTERVAL: Final = 1.0  # seconds between reviews of a settled baseline


class CostClass:
    """One kind of operation: a label, and the power of two of its size."""

    __slots__ = (
        "is_known",
        "key",
        "log_baseline",
        "longest",
        "review_at",
        "samples",
        "scale",
        "used_at",
    )

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.scale = 1.0
        """Usual cost relative to the reference class."""
        self.is_known = False
        """Whether `scale` rests on an answer; until then a latency proves nothing."""
        self.longest: float | None = None
        """Seconds that a read takes at most, more or less; None until a consensus router knows."""
        self.log_baseline = 0.0
        self.samples = 0
        self.review_at = float("-inf")
        self.used_at = float("-inf")


class CostClasses:
    """The kinds of operation seen so far, at most `limit`, least recently used out.

    Args:
        limit: how many are told apart, >= 1.
        enabled: if false, every operation is one kind.
    """

    def __init__(self, limit: int, *, enabled: bool = True) -> None:
        self._limit = limit
        self._enabled = enabled
        self.by_key: dict[Hashable, CostClass] = {}
        self._reference = CostClass(None)

    def __len__(self) -> int:
        return len(self.by_key)

    def get(
        self, operation: Hashable, units: int, now: float, states: Collection[EndpointState]
    ) -> CostClass:
        """Return the class of `operation` with `units` parts, made if new."""
        if not self._enabled:
            operation, units = None, 1
        key = operation if units == 1 else (operation, units.bit_length())
        found = self.by_key.get(key)
        return found if found is not None else self._add(key, now, states)

    def _add(self, key: Hashable, now: float, states: Collection[EndpointState]) -> CostClass:
        if not self.by_key:
            self._reference = CostClass(key)
            self._reference.is_known = True
            self.by_key[key] = self._reference
            return self._reference
        if len(self.by_key) >= self._limit:
            if self._limit == 1:
                return self._reference
            oldest = min(
                (c for c in self.by_key.values() if c is not self._reference),
                key=lambda c: c.used_at,
            )
            del self.by_key[oldest.key]
            for state in states:
                state.class_means.pop(oldest, None)
        elif len(self.by_key) == 1:
            # Alone, the reference's means are the endpoints' own; from now on they differ.
            for state in states:
                if state.samples:
                    state.class_means[self._reference] = state.mean.log
        added = self.by_key[key] = CostClass(key)
        added.used_at = now  # or two new ones would evict each other, answered by neither
        return added

    def learn(
        self,
        state: EndpointState,
        cost_class: CostClass,
        latency: float,
        now: float,
        states: Collection[EndpointState],
    ) -> float:
        """Learn an answered request's raw `latency` and return a factor for all estimates.

        The factor is 1 unless another class became the most common one, in which case every
        stored estimate must be multiplied by it: a change of unit.
        """
        cost_class.samples += 1
        cost_class.used_at = now
        if len(self.by_key) == 1 or self.by_key.get(cost_class.key) is not cost_class:
            return 1.0  # alone, or evicted meanwhile
        means = state.class_means
        value = log(latency)
        mean = means.get(cost_class)
        means[cost_class] = value if mean is None else mean + _SLOW_WEIGHT * (value - mean)
        if cost_class.samples > _EAGER_SAMPLES and now < cost_class.review_at:
            return 1.0
        cost_class.review_at = now + _REVIEW_INTERVAL
        return self._review(cost_class, states)

    def _review(self, cost_class: CostClass, states: Collection[EndpointState]) -> float:
        """Renew the baseline and scale of one class; see `learn` for the factor."""
        cost_class.log_baseline = median_low(
            [s.class_means[cost_class] for s in states if cost_class in s.class_means]
        )
        reference = self._reference
        if cost_class is reference:
            return 1.0
        if not any(reference in s.class_means for s in states):
            # No endpoint that is left has answered the reference; this class takes its place.
            reference.is_known = False
            return self._refer_to(cost_class)
        reference.log_baseline = median_low(
            [s.class_means[reference] for s in states if reference in s.class_means]
        )
        cost_class.scale = exp(cost_class.log_baseline - reference.log_baseline)
        cost_class.is_known = True
        if cost_class.samples <= 2 * reference.samples:
            return 1.0
        return self._refer_to(cost_class)

    def _refer_to(self, cost_class: CostClass) -> float:
        """Make `cost_class` the unit of all others; return the factor for the estimates."""
        factor = cost_class.scale
        self._reference = cost_class
        for other in self.by_key.values():
            other.scale /= factor
        cost_class.scale = 1.0
        cost_class.is_known = True
        return factor
