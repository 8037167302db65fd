"""What is asked of a store and when, decided by a seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a client method.

    Attributes:
        kind: Whether it changes the store.
        method: Name of the client's method; results are reported per method.
        arguments: Positional arguments.
    """

    kind: Kind
    method: str
    arguments: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """Operations with the share of each; shares need not add up to one, any may be 0."""

    operations: Sequence[Operation]
    shares: Sequence[float]

    def draw(self, rng: random.Random, count: int) -> list[Operation]:
        """Return ``count`` operations drawn by their shares."""
        return rng.choices(self.operations, weights=self.shares, k=count)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An operation and its intended start, in seconds from the beginning of the load."""

    at: float
    operation: Operation


def poisson_arrivals(
    mix: Mix, *, rate: float, seconds: float, rng: random.Random, limit: int = 1_000_000
) -> list[Arrival]:
    """Return arrivals of independent users: exponential gaps, ordered, at most ``limit``.

    Args:
        mix: What they ask.
        rate: Arrivals per second, on average.
        seconds: Every intended start is before this.
        rng: Decides gaps and operations; the same state gives the same arrivals.
        limit: Bound on their number.
    """
    if not rate > 0 or not seconds > 0:
        raise ValueError(f"rate and seconds must be positive, got {rate} and {seconds}")
    starts: list[float] = []
    at = rng.expovariate(rate)
    while at < seconds and len(starts) < limit:
        starts.append(at)
        at += rng.expovariate(rate)
    operations = mix.draw(rng, len(starts))
    return [Arrival(at, operation) for at, operation in zip(starts, operations, strict=True)]
