"""What is in flight on behalf of the running code: one attempt, or a pipeline (`_pipeline`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextvars import ContextVar, Token
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from lb_strategies import Outcome, Pick

from ._errors import (
    DENIED,
    REDIRECTS,
    TRY_AGAIN,
    UNFIT,
    is_a,
    outcome_of,
    unfit,
)
from ._redirects import astray, localise

if TYPE_CHECKING:
    from ._lag import LoopLag
    from ._pipeline import PipelineCall
    from ._router import Router, Shard

current: ContextVar[Attempt | PipelineCall | None] = ContextVar("lb_strategies", default=None)

SUCCESS: Final = Outcome.SUCCESS


BLOCKING: Final = frozenset({"XREAD", "xread", b"XREAD", b"xread"})
"""The one read that may wait for data: its duration then says nothing, nor does its presence."""


def is_blocking(args: Sequence[object]) -> bool:
    """Whether a command is a read that waits for data."""
    return args[0] in BLOCKING and any(a in ("BLOCK", b"BLOCK", "block") for a in args[1:])


class Attempt:
    """One command on one node, or on several in turn if it is redirected.

    Args:
        pick: what is in flight.
        shard: where the node was chosen from; None if something else chose it.
        tried: the nodes that have failed this command.
    """

    # Defaults of the class, so that the usual attempt does not have to store them.
    connected_at = 0.0
    ended_at = 0.0
    is_timed = True
    is_plain = True
    """Whether nothing happened that its duration would have to be corrected for."""
    denied: tuple[Pick, ...] = ()
    """In flight where this command was denied, until it is known whether others deny it too."""
    is_sent = True
    """Whether the node was asked at all: a client-side cache may answer in its place."""

    def __init__(self, pick: Pick, shard: Shard | None = None, tried: Collection[str] = ()) -> None:
        self.pick = pick
        self.shard = shard
        self.tried = tried

    def connected(self) -> None:
        """Start the clock anew: a connection had to be made first."""
        self.is_plain = False
        self.connected_at = perf_counter()

    def hop(self, name: str, router: Router) -> None:
        """Note a redirect: the node so far has handed on to node `name`."""
        now = perf_counter()
        self.pick.done(Outcome.REDIRECT, now=now)
        operation = self.pick.operation
        self.is_plain = False
        # It will not answer if asked once more: without this a dead target would be for ever.
        self.tried = (*self.tried, str(self.pick.endpoint))
        self.pick = router.balancer.begin(name, now=now, operation=operation)

    def replied(self, error: Exception) -> Exception:
        """Look at an error reply and return what redis-py should make of it."""
        if is_a(error, TRY_AGAIN):
            self.is_plain = self.is_timed = False  # sent again, after a while
        elif is_a(error, UNFIT) and self.has_alternative():
            return unfit(error)
        return error

    def astray(self, error: Exception) -> Exception:
        """Return what the library should make of a redirect to a node that nobody knows."""
        return astray(error)

    @property
    def node(self) -> Any:
        """The node of the shard that the command is on; None if it is on no such node."""
        return None if self.shard is None else self.shard.by_name.get(self.pick.endpoint)

    def has_alternative(self) -> bool:
        """Whether the command could go to a node that it has not tried."""
        return self.shard is not None and not self.shard.everyone.issubset(
            (*self.tried, self.pick.endpoint)
        )

    def succeed(self, lag: LoopLag | None = None) -> None:
        """Give the pick back: the node answered."""
        if self.is_plain and self.shard is not None:
            pick, now = self.pick, perf_counter()
            if lag is None or (lag.stalled_at < pick.started_at and now <= lag.overdue_at):
                pick.done(SUCCESS, now=now)
                return
        self._done(SUCCESS, lag)

    def fail(self, error: BaseException, lag: LoopLag | None = None) -> bool:
        """Give the pick back after an error; return whether another node should be tried."""
        if is_a(error, DENIED) and self.has_alternative():
            self.denied = (*self.denied, self.pick)
            return True
        outcome = outcome_of(error)
        self._done(outcome, lag)
        return outcome in (Outcome.FAILURE, Outcome.TIMEOUT) and self.has_alternative()

    def retries(self, denied: tuple[Pick, ...]) -> None:
        """Note who has denied the command so far."""
        self.denied = denied
        self.is_plain = False

    def _done(self, outcome: Outcome, lag: LoopLag | None) -> None:
        now = self.ended_at or perf_counter()
        for pick in self.denied:
            pick.done(Outcome.FAILURE if outcome is SUCCESS else Outcome.REDIRECT, now=now)
        started_at = max(self.pick.started_at, self.connected_at)
        if not self.is_sent:
            outcome = Outcome.REDIRECT
        is_timed = self.is_timed and self.shard is not None  # only reads teach a latency
        outcome = told(outcome, is_timed=is_timed, lag=lag, started_at=started_at, now=now)
        self.pick.done(outcome, now=now, started_at=started_at)


class Uncounted(Attempt):
    """A command that is neither load nor sample: one that waits for data."""

    def __init__(self) -> None:
        self.shard = None
        self.tried = ()

    def hop(self, name: str, router: Router) -> None:
        """Let it pass: nothing is counted."""


def told(
    outcome: Outcome, *, is_timed: bool, lag: LoopLag | None, started_at: float, now: float
) -> Outcome:
    """Return what the balancer is told of an outcome: no duration that is not the node's."""
    is_ours = lag is not None and lag.explains(started_at, now)
    if outcome is SUCCESS and (is_ours or not is_timed):
        return Outcome.UNTIMED
    if is_ours and outcome in (Outcome.TIMEOUT, Outcome.CANCELLED):
        return Outcome.REDIRECT
    return outcome


def watch_replies(connection: Any, manager: Any) -> None:
    """Let the current attempt see the error replies that `connection` parses.

    Set on the one parser, so that replies which are no errors cost nothing.

    Args:
        connection: to a node of the cluster.
        manager: of the client's topology, where redirects are looked up.
    """
    parser = connection._parser
    original = type(parser).parse_error.__func__  # a class method, which older clients give to

    def parse_error(response: str) -> Exception:  # a parser with classes of errors of its own
        error: Exception = original(parser, response)
        attempt = current.get()
        if is_a(error, REDIRECTS):
            is_known = localise(error, connection, manager)
            if attempt is not None and not is_known:
                return attempt.astray(error)
        return error if attempt is None else attempt.replied(error)

    parser.parse_error = parse_error


def leave(token: Token[Any]) -> None:
    """Give a context variable the value that it had before."""
    try:
        token.var.reset(token)
    except ValueError:  # thrown away, and closed in somebody else's context
        return


def connected() -> None:
    """Start the clock of the attempt that has been waiting for a connection."""
    attempt = current.get()
    if attempt is not None:
        attempt.connected()
