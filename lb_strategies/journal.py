"""A line in the log for each endpoint that leaves the pool, and one for each that returns.

Noted under the balancer's lock, written when it is free: a handler may wait, or use the very
client whose pick this is.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .endpoint import EndpointState

_LOGGER: Final = logging.getLogger("lb_strategies")
_LOGGER.addHandler(logging.NullHandler())  # or a program that configures nothing would see it

_EJECTED: Final = (
    "ejected %s: reason=%s mean=%.6fs median=%.6fs samples=%d failures_in_a_row=%d "
    "succeeded=%d/%d oldest_request=%.6fs pool=%d/%d"
)
_RETURNED: Final = "returned %s: reason=%s out_for=%.3fs probe=%.6fs median=%.6fs pool=%d/%d"
_SPARED: Final = "returned %s: reason=%s out_for=%.3fs, a worse one takes its place, pool=%d/%d"


class Journal:
    """What is to be written, in the order in which it happened.

    One thread writes at a time, and goes on to what others note meanwhile; these do not wait.
    """

    def __init__(self) -> None:
        self.lines: deque[tuple[int, str, tuple[object, ...]]] = deque()
        self.forget()

    def forget(self) -> None:
        """Start anew, in a forked child: what is left is the parent's to write."""
        self.lines.clear()
        self._turn = threading.Lock()

    def ejected(
        self,
        state: EndpointState,
        states: tuple[EndpointState, ...],
        *,
        median: float,
        oldest: float,
        now: float,
    ) -> None:
        """Note that `state`, one of the candidates `states`, has just left the pool.

        Args:
            state: what is known of it.
            states: the candidates it was compared with, itself among them.
            median: of the candidates' means, in seconds.
            oldest: age of its oldest request in flight, in seconds.
            now: monotonic time in seconds.
        """
        failures, successes = state.failure_counts(now)
        self._note(
            logging.WARNING,
            _EJECTED,
            state.endpoint,
            _reason(state),
            state.mean_rtt,
            median,
            state.samples,
            state.consecutive_failures,
            successes,
            successes + failures,
            oldest,
            *_pool(states),
        )

    def returned(
        self,
        state: EndpointState,
        states: tuple[EndpointState, ...],
        *,
        rtt: float,
        median: float,
        now: float,
    ) -> None:
        """Note that `state`, one of the candidates `states`, is about to come back.

        Args:
            state: what is known of it.
            states: the candidates that it joins, itself among them.
            rtt: of the probe that convinced, in seconds.
            median: of the candidates' means, in seconds.
            now: monotonic time in seconds.
        """
        in_pool, all_of_them = _pool(states)
        self._note(
            logging.INFO,
            _RETURNED,
            state.endpoint,
            _reason(state),
            now - state.ejected_at,
            rtt,
            median,
            in_pool + 1,
            all_of_them,
        )

    def spared(
        self, state: EndpointState, states: tuple[EndpointState, ...], *, now: float
    ) -> None:
        """Note that `state` is about to come back unproven, because another one is worse.

        Args:
            state: what is known of it.
            states: the candidates that it joins, itself among them.
            now: monotonic time in seconds.
        """
        in_pool, all_of_them = _pool(states)
        out_for = now - state.ejected_at
        self._note(
            logging.INFO,
            _SPARED,
            state.endpoint,
            _reason(state),
            out_for,
            in_pool + 1,
            all_of_them,
        )

    def _note(self, level: int, message: str, *args: object) -> None:
        self.lines.append((level, message, args))

    def write(self) -> None:
        """Log what has been noted; the balancer's lock must not be held."""
        # Asked again after giving up the turn: whoever was refused it meanwhile relies on us.
        while self.lines and self._turn.acquire(blocking=False):
            try:
                while self.lines:
                    level, message, args = self.lines.popleft()
                    _log(level, message, args)
            finally:
                self._turn.release()


def _log(level: int, message: str, args: tuple[object, ...]) -> None:
    try:
        _LOGGER.log(level, message, *args)
    except Exception:
        # A filter's or handler's bug, which must not cost a pick; reported as `logging` would.
        if logging.raiseExceptions:
            traceback.print_exc()


def _reason(state: EndpointState) -> str | None:
    return None if state.ejected_for is None else state.ejected_for.value


def _pool(states: tuple[EndpointState, ...]) -> tuple[int, int]:
    """Return how many candidates are in the pool, and how many there are."""
    return sum(s.ejected_for is None for s in states), len(states)
