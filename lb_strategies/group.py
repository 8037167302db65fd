"""Endpoints that compete with each other: the candidates of one slot, shard or cluster."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .endpoint import EndpointState


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a look at a whole group says; good for a few milliseconds.

    Args:
        median: low median of the means of those that have answered, in seconds; None if none.
        hung: the endpoints to eject as hung, oldest request first.
        spared: those out for latency that come back in to make room for them.
        pool: who may be picked; never empty.
        panic: whether the pool is everybody because nobody is healthy.
        probe: who must be picked next, to see how it fares; None if nobody is due.
    """

    median: float | None
    hung: tuple[EndpointState, ...]
    spared: tuple[EndpointState, ...]
    pool: tuple[EndpointState, ...]
    panic: bool
    probe: EndpointState | None


class Group:
    """A cached set of candidates, so that nothing on the pick path is O(n).

    Args:
        states: the records of the candidates, in their order, distinct, at least one.
    """

    __slots__ = (
        "aliases",
        "check_at",
        "checked_at",
        "median",
        "panic",
        "plain_until",
        "pool",
        "probe",
        "review_at",
        "reviewed_at",
        "states",
    )

    def __init__(self, states: tuple[EndpointState, ...]) -> None:
        self.states = states
        self.aliases: list[tuple[Hashable, ...]] = []
        """The tuples that are cached by identity as this group; kept so that ids stay theirs."""
        self.median: float | None = None
        self.pool = states
        self.panic = False
        self.plain_until = float("-inf")
        """Until when a pick is a matter of the policy alone: no probe is due, no panic."""
        self.probe: EndpointState | None = None
        self.checked_at = float("inf")
        self.check_at = float("-inf")
        self.reviewed_at = float("inf")
        self.review_at = float("-inf")
        """Until when, from `reviewed_at` on, medians hold unless something happens."""

    def adopt(self, assessment: Assessment, now: float, until: float) -> None:
        """Use a new assessment, made `now`, for the picks `until` then."""
        self.median = assessment.median
        self.pool = assessment.pool
        self.panic = assessment.panic
        self.probe = assessment.probe
        self.extend(now, until)

    def extend(self, now: float, until: float) -> None:
        """Go on with what is known, `until` then."""
        self.checked_at = now
        self.check_at = until
        is_plain = self.probe is None and not self.panic
        self.plain_until = until if is_plain else float("-inf")

    def rescale(self, factor: float) -> None:
        """Express what is cached in another unit of cost, and ask for a new assessment."""
        if self.median is not None:
            self.median *= factor
        self.stale()

    def stale(self) -> None:
        """Ask for a new assessment at the next pick."""
        self.check_at = self.plain_until = self.review_at = float("-inf")
