"""What is wrong with the links of a cluster, and what they really did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Protocol


@dataclass(slots=True)
class Trouble:
    """What is wrong with a member's links now: seconds added, and whether they are cut."""

    client_delay: float = 0.0
    client_jitter: float = 0.0
    peer_delay: float = 0.0
    peer_jitter: float = 0.0
    is_client_cut: bool = False
    is_peer_cut: bool = False


class HasTrouble(Protocol):
    """The links of one member."""

    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a link really held messages back in one direction, in seconds."""

    mean: float
    median: float
    p99: float
    count: int


def mean_delay(delays: Iterable[Delay]) -> float:
    """Return the mean of all messages in seconds; 0 if there were none."""
    known = list(delays)
    count = sum(delay.count for delay in known)
    return sum(delay.mean * delay.count for delay in known) / max(count, 1)


def delay_of(given: Sequence[float]) -> Delay:
    """Summarize how long messages were held back, in seconds."""
    if len(given) < 2:
        only = given[0] if given else 0.0
        return Delay(only, only, only, len(given))
    return Delay(fmean(given), median(given), quantiles(given, n=100)[98], len(given))
