"""The routing of one client: leadership, read pool and retries, without any I/O."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from ..balancer import LoadBalancer
from ..membership import Endpoint
from ..pick import Outcome, Pick
from ..policy import Policy
from ..strategy import LoadBalancingStrategy
from .leadership import LeadershipTracker, StatusRefusedError
from .operation import FailureKind, Operation
from .options import ConsensusOptions
from .plan import Plan
from .retries import make_plan

ReplyT = TypeVar("ReplyT")

_LOGGER: Final = logging.getLogger("lb_strategies")

_BLIND: Final = frozenset(
    {
        LoadBalancingStrategy.ROUND_ROBIN,
        LoadBalancingStrategy.ROUND_ROBIN_REPLICAS,
        LoadBalancingStrategy.RANDOM,
        LoadBalancingStrategy.RANDOM_REPLICA,
    }
)
"""The stock baselines: every operation goes anywhere, whatever is known of the members."""
_FOLLOWERS_ONLY: Final = frozenset(
    {
        LoadBalancingStrategy.ROUND_ROBIN_REPLICAS,
        LoadBalancingStrategy.RANDOM_REPLICA,
        LoadBalancingStrategy.LATENCY_BASED_REPLICAS,
    }
)
_SUCCESS: Final = Outcome.SUCCESS  # an enum's member costs a look-up more
_UNTIMED: Final = Outcome.UNTIMED
_UNPINNED: Final = _BLIND | {LoadBalancingStrategy.BOLTZMANN}
"""Those for which an operation's class does not matter."""
_LONGEST_TIMES: Final = 10.0
"""How many times as long as the longest of its kind an attempt may take."""
_UNKNOWN_TIMES: Final = 10.0
"""How many times the least time-out, for a kind that was never seen to end."""
_WEIGHT_OF_LESS: Final = 0.02
_COUNTED: Final = {
    FailureKind.UNREACHABLE: Outcome.FAILURE,
    FailureKind.INTERRUPTED: Outcome.FAILURE,
    FailureKind.OVERLOADED: Outcome.FAILURE,
    FailureKind.TIMED_OUT: Outcome.TIMEOUT,
    FailureKind.CANCELLED: Outcome.CANCELLED,
    FailureKind.LEADER_LOST: Outcome.UNTIMED,
    FailureKind.BEHIND: Outcome.UNTIMED,
}
"""What a failure says of the member's health; the rest says nothing."""


class ConsensusRouter:
    """Decides where each operation goes, and what to do when it fails.

    With HYBRID, LATENCY_BASED, LATENCY_BASED_REPLICAS and a policy of the user's own, writes go
    to the leader and reads are spread by the strategy; with the others every operation is alike.

    Args:
        members: at least one endpoint, without repetition.
        strategy: a `LoadBalancingStrategy`, its value, or a `Policy`.
        options: tunables; the defaults if None.
        rng: source of randomness; a new ``random.Random()`` if None.
        refresh: called when the members should be polled at once; must not wait.

    Raises:
        ValueError: no member, one given twice, or an unknown strategy.
        TypeError: an argument is of another type.
    """

    def __init__(
        self,
        members: Iterable[Endpoint],
        strategy: LoadBalancingStrategy | Policy | str,
        *,
        options: ConsensusOptions | None = None,
        rng: random.Random | None = None,
        refresh: Callable[[], object] = lambda: None,
    ) -> None:
        if options is not None and not isinstance(options, ConsensusOptions):
            raise TypeError(f"options must be a ConsensusOptions, got {options!r}")
        self.options = options if options is not None else ConsensusOptions()
        # The balancer seeds it anew in a forked child.
        self.rng = rng if rng is not None else random.Random()
        self.balancer = LoadBalancer(strategy, options=self.options.balancer, rng=self.rng)
        self._refresh = refresh
        endpoints = _checked(members)
        self.tracker = LeadershipTracker(endpoints, max_misses=self.options.max_misses)
        self.balancer.update(endpoints)
        chosen = self.balancer.strategy
        self._is_blind = chosen in _BLIND
        self.is_pinned = chosen not in _UNPINNED
        """Whether writes go to the leader, as long as one is known."""
        self._only_followers = chosen in _FOLLOWERS_ONLY
        self._is_special = self._is_blind or self._only_followers
        """Whether reads go to others than the healthy ones."""
        self._cold: dict[Endpoint, int] = {}
        """How many answers the members that are new will still teach nothing with."""
        self._least = self.options.attempt_timeout
        self._was_refused = False
        self._warm_up(endpoints)

    def update(self, members: Iterable[Endpoint]) -> None:
        """Make `members` the whole membership; what is known of those that stay is kept."""
        endpoints = _checked(members)
        joined = [m for m in endpoints if m not in self.tracker.members]
        self.tracker.update(endpoints)
        self.balancer.update(endpoints)
        self._warm_up(joined)

    def _warm_up(self, joined: Iterable[Endpoint]) -> None:
        known = self.tracker.members
        left = {m: n for m, n in list(self._cold.items()) if m in known}
        if self.options.cold_samples:
            left.update(dict.fromkeys(joined, self.options.cold_samples))
        self._cold = left

    # -- choosing ---------------------------------------------------------------------------

    def acquire(
        self, operation: Operation, *, now: float, exclude: tuple[Endpoint, ...] = ()
    ) -> Pick:
        """Choose the member for `operation` and count one in flight there.

        Args:
            operation: what is to be done.
            now: monotonic time in seconds.
            exclude: members to avoid if there is any other one, healthy or not.
        """
        kind = operation.kind
        if not operation.timed:  # it may wait for somebody else, and is no load meanwhile
            pick = self._acquire(operation, now, exclude, probes=False)
            pick.done(Outcome.REDIRECT, now=now)
            return pick
        if operation.member is None and not (exclude or self._is_special):
            # As for nearly all reads and writes; `_acquire` would do the same.
            tracker = self.tracker
            if kind.is_read:
                return self.balancer.acquire(
                    tracker.voters if kind.needs_voter else tracker.reachable,
                    now=now,
                    operation=operation.label,
                )
            leader = tracker.leader
            if leader is not None and kind.needs_leader and self.is_pinned:
                return self.balancer.begin(leader, now=now, operation=operation.label)
        # Nothing that teaches nothing tries out a member; see `succeeded`.
        return self._acquire(operation, now, exclude, kind.is_read or not self.is_pinned)

    def limit(self, operation: Operation, pick: Pick, timeout: float | None) -> float | None:
        """Return how long the first attempt of a request may take, in seconds; None if for ever.

        Args:
            operation: what is to be done.
            pick: the member chosen for it.
            timeout: how long the caller waits.
        """
        kind = operation.kind
        if not kind.is_read or operation.member is not None:
            return timeout
        tracker = self.tracker
        if len(tracker.all_voters if kind.needs_voter else tracker.members) == 1:
            return timeout
        cut = self.attempt_timeout(operation, pick)
        return timeout if cut is None or (timeout is not None and timeout <= cut) else cut

    def assign(
        self, operation: Operation, *, now: float, exclude: tuple[Endpoint, ...] = ()
    ) -> Endpoint:
        """Choose the member of a stream, which is no request in flight; as `acquire` otherwise."""
        # It stays for long, so it tries out no member that is out.
        pick = self._acquire(operation, now, exclude, probes=False)
        pick.done(Outcome.REDIRECT, now=now)
        return pick.endpoint

    def _acquire(
        self, operation: Operation, now: float, exclude: tuple[Endpoint, ...], probes: bool
    ) -> Pick:
        if operation.member is not None:
            return self.balancer.begin(operation.member, now=now, operation=operation.label)
        if self.is_pinned and operation.kind.needs_leader:
            leader = self.tracker.leader
            if leader is not None and leader not in exclude:
                return self.balancer.begin(leader, now=now, operation=operation.label)
        candidates, fallback = self._candidates(operation)
        if exclude and all(m in exclude for m in (*candidates, *fallback)):
            candidates = self.everybody(operation)  # who is out may do, as nobody else does
        return self.balancer.acquire(
            candidates,
            now=now,
            operation=operation.label,
            exclude=exclude,
            fallback=fallback,
            probes=probes,
        )

    def _candidates(
        self, operation: Operation
    ) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
        """Return who may serve it, and who if none of these is healthy."""
        tracker = self.tracker
        if self._is_blind:
            if self._only_followers and tracker.all_followers:
                return tracker.all_followers, tracker.all_voters
            return tracker.all_voters, ()
        kind = operation.kind
        if kind.needs_voter:
            serving, replicas = tracker.voters, tracker.followers
        else:
            serving, replicas = tracker.reachable, tracker.replicas
        if self._only_followers and kind.is_read and replicas:
            return replicas, serving
        return serving, ()

    def everybody(self, operation: Operation) -> tuple[Endpoint, ...]:
        """Return all that could serve `operation`, whether they are reachable or not."""
        if operation.member is not None:
            return (operation.member,)
        tracker = self.tracker
        return tracker.all_voters if operation.kind.needs_voter else tracker.members

    # -- what came of it --------------------------------------------------------------------

    def succeeded(
        self,
        pick: Pick,
        operation: Operation,
        *,
        now: float,
        term: int | None = None,
        leader: Hashable | None = None,
    ) -> None:
        """Take in an answer: its duration, and the term it was given in."""
        is_read = operation.kind.is_read
        if not operation.timed or (self.is_pinned and not is_read):
            # A write's time depends on the leader and the rest, and is no sample of a member's.
            pick.done(_UNTIMED, now=now)
        else:
            pick.done(self._taught(pick) if self._cold else _SUCCESS, now=now)
            if is_read:  # up at once, down slowly
                kind, elapsed = pick.cost_class, now - pick.started_at
                longest = kind.longest
                if longest is None or elapsed > longest:
                    kind.longest = elapsed
                else:
                    kind.longest = longest + _WEIGHT_OF_LESS * (elapsed - longest)
        if term is None or (term == self.tracker.term and leader is None):
            return  # nearly always
        if self.tracker.reply(term, leader):
            self._refresh()

    def _taught(self, pick: Pick) -> Outcome:
        """Return what an answer counts as, while some member is new and its first teach nothing."""
        left = self._cold.get(pick.endpoint, 0)
        # A probe that is to decide about a return has to be judged.
        if not left or (pick.is_probe and not pick.state.is_cold):
            return _SUCCESS
        if left > 1:
            self._cold[pick.endpoint] = left - 1
        else:
            self._cold.pop(pick.endpoint, None)
        return _UNTIMED

    def failed(self, pick: Pick, operation: Operation, kind: FailureKind, *, now: float) -> None:
        """Take in a failure: what it says of the member and of the leadership."""
        if kind is FailureKind.ANSWER:
            self.succeeded(pick, operation, now=now)
        else:
            pick.done(_COUNTED.get(kind, Outcome.REDIRECT), now=now)
        self.stream_failed(pick.endpoint, operation, kind)

    def stream_failed(self, member: Endpoint, operation: Operation, kind: FailureKind) -> None:
        """Take in what the failure of a stream, of which nobody counts or times anything, says."""
        if kind is FailureKind.LEARNER:
            self.tracker.found_learner(member)
        elif kind in (FailureKind.UNREACHABLE, FailureKind.INTERRUPTED, FailureKind.TIMED_OUT):
            if operation.kind.needs_leader or kind is FailureKind.UNREACHABLE:
                self.tracker.failure(member)
            self._refresh()
        elif kind is FailureKind.NO_LEADER:
            self.tracker.found_leaderless(member)
            self._refresh()
        elif kind in (FailureKind.DROPPED, FailureKind.LEADER_LOST):
            self._refresh()

    def poll_failed(self, member: Endpoint, error: Exception) -> None:
        """Take in that a poll of `member` ended with `error`."""
        if isinstance(error, StatusRefusedError):
            self.tracker.answered(member)
            if not self._was_refused:
                self._was_refused = True
                _LOGGER.warning("%s does not tell who leads, so writes rotate: %s", member, error)
        elif self.tracker.poll_missed(member):
            _LOGGER.warning("%s is out: it missed polls (%s)", member, type(error).__name__)

    def attempt_timeout(self, operation: Operation, pick: Pick) -> float | None:
        """Return how long an attempt may take before another member is asked; None if for ever.

        Ten times what such a read takes at most, but no less than the option says. Only reads are
        given up: a write that is may have been executed.
        """
        if not operation.kind.is_read or not operation.timed:
            return None
        longest, least = pick.cost_class.longest, self._least
        if longest is None:
            return _UNKNOWN_TIMES * least
        cut = _LONGEST_TIMES * longest
        return cut if cut > least else least  # every read asks, and `max` is dearer

    def backoff(self, rounds: int) -> float:
        """Return how long to wait after so many pauses: doubling, and not in step with others."""
        delay = self.options.backoff * 2.0 ** min(rounds, 32)
        return min(delay, self.options.max_backoff) * (0.75 + 0.5 * self.rng.random())

    # -- the whole of a request -------------------------------------------------------------

    def plan(
        self,
        operation: Operation,
        *,
        now: float,
        timeout: float | None = None,
        first: Pick | None = None,
    ) -> Plan[ReplyT]:
        """Return the plan of one request.

        Nothing that may have been executed is sent twice, unless it is a read; and nothing is
        sent again after the caller's time is over. A plan that is closed gives its pick back.

        Args:
            operation: what is to be done.
            now: monotonic time in seconds.
            timeout: how long the caller waits, in seconds; None if for ever.
            first: the pick of the first attempt, if that was made already: the plan begins with
                it, and is told how it went. Most requests need no second one, and so no plan.
        """
        return make_plan(self, operation, now, timeout, first)


def _checked(members: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    if isinstance(members, (str, bytes)):
        raise TypeError(f"members must be several endpoints, got the string {members!r}")
    endpoints = tuple(members)
    if not endpoints:
        raise ValueError("members must hold at least one endpoint, got none")
    for endpoint in endpoints:
        if endpoints.count(endpoint) > 1:
            raise ValueError(f"members must not hold an endpoint twice, got {endpoint!r} again")
    return endpoints
