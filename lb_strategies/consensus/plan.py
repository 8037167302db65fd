"""Plans: a request that may take several attempts, as a generator that does no I/O.

A plan yields what is to be done and is sent what came of it; `drivers` do it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..membership import Endpoint
from .operation import FailureKind

ReplyT = TypeVar("ReplyT")


# Not frozen, these two: every request makes one of each, and a frozen one costs twice as much.
@dataclass(slots=True)
class Send:
    """Send the request to `endpoint`; give up after `timeout` seconds, or never if None."""

    endpoint: Endpoint
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for `seconds`, >= 0."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Get a new token for `endpoint`, within `timeout` seconds if that is not None."""

    endpoint: Endpoint
    timeout: float | None = None


@dataclass(slots=True)
class Reply(Generic[ReplyT]):
    """The request was answered at `now`, in `term` if the answer told (and `leader` if it did)."""

    value: ReplyT
    now: float
    term: int | None = None
    leader: object | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt ended with `error` at `now`."""

    error: BaseException
    kind: FailureKind
    now: float


@dataclass(frozen=True, slots=True)
class Done:
    """What is neither a request nor has a result was done by `now`."""

    now: float


Step = Send | Sleep | Authenticate
Event = Reply[ReplyT] | Failure | Done
Plan = Generator[Step, Event[ReplyT], ReplyT]
"""Yields steps, is sent one event for each, returns the reply or raises the store's own error."""
