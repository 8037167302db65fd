"""One chosen endpoint, and how its request ended."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .balancer import LoadBalancer
    from .endpoint import EndpointState
    from .operations import CostClass


class Outcome(Enum):
    """How a request ended, as far as the endpoint is concerned."""

    SUCCESS = "success"
    """Answered; also every answer that proves the server works, such as "not found"."""
    FAILURE = "failure"
    """Refused, reset, unavailable, overloaded, loading: the server did not do its work."""
    TIMEOUT = "timeout"
    """No answer in time; the elapsed time is a lower bound of the latency."""
    CANCELLED = "cancelled"
    """Given up by the caller, or a hedge that lost."""
    REDIRECT = "redirect"
    """Sent elsewhere (MOVED, ASK, "not leader"), or never sent; says nothing of the endpoint."""
    UNTIMED = "untimed"
    """Answered, but how long it took says nothing: a write, a transaction, a blocking read."""


_SUCCESS: Final = Outcome.SUCCESS  # an enum's member costs a look-up more
_UNTIMED: Final = Outcome.UNTIMED


class Pick:
    """One request in flight on `endpoint`; give it back with exactly one `done`.

    Made by `LoadBalancer.acquire` and `LoadBalancer.begin`. Usable from any thread or task.
    """

    __slots__ = ("_balancer", "cost_class", "is_probe", "started_at", "state")

    def __init__(
        self,
        balancer: LoadBalancer,
        state: EndpointState,
        cost_class: CostClass,
        started_at: float,
    ) -> None:
        self._balancer = balancer
        self.state = state
        self.cost_class = cost_class
        self.started_at = started_at
        self.is_probe = False

    @property
    def endpoint(self) -> Hashable:
        """The endpoint, as it was handed in."""
        return self.state.endpoint

    @property
    def operation(self) -> Hashable:
        """The label it is judged under."""
        return self.cost_class.key

    def relabel(self, operation: Hashable, units: int = 1) -> None:
        """Say what the request is, once that is known: how many commands a batch got, say.

        Args:
            operation: short label of the kind of request.
            units: how many parts it has, an int >= 1.
        """
        self._balancer._relabel(self, operation, units)

    def done(self, outcome: Outcome, *, now: float, started_at: float | None = None) -> None:
        """Give the endpoint back and teach the balancer how it went.

        Never raises, and does nothing the second time, after a fork, or for an endpoint that
        has left (whose successor at the same address is not touched).

        Args:
            outcome: how the request ended.
            now: monotonic time in seconds, on the clock that the pick was made with.
            started_at: when the request itself began, if that was later than the pick: a
                connection made in between is not the server's latency.
        """
        if started_at is None:
            started_at = self.started_at
        state = self.state
        # Most answers are usual ones of settled endpoints: they cost no more than this.
        with self._balancer._lock:
            if now < state.learn_at and self in state.open_picks:
                if outcome is _SUCCESS:
                    kind = self.cost_class
                    rtt = (now - started_at) / kind.scale
                    is_usual = state.usual_from <= rtt <= state.usual_to and kind.is_known
                else:
                    is_usual = outcome is _UNTIMED
                if is_usual:
                    del state.open_picks[self]
                    state.in_flight -= 1
                    state.successes += 1
                    return
            self._balancer._finish(self, outcome, now, started_at)
        if self._balancer._journal.lines:
            self._balancer._report()

    def __repr__(self) -> str:
        probe = " (probe)" if self.is_probe else ""
        return f"<Pick {self.endpoint!r}{probe} started at {self.started_at:.6f}>"
