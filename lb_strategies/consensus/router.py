"""The routing of one client: leadership, read pool and retries, without any I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from ..balancer import LoadBalancer
from ..membership import Endpoint
from ..pick import Outcome, Pick
from ..policy import Policy
from ..strategy import LoadBalancingStrategy
from .leadership import LeadershipTracker
from .operation import FailureKind, Operation, OperationClass
from .options import ConsensusOptions
from .plan import Authenticate, Failure, Plan, Reply, Send, Sleep, Step

ReplyT = TypeVar("ReplyT")

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
_UNPINNED: Final = _BLIND | {LoadBalancingStrategy.BOLTZMANN}
"""Those for which an operation's class does not matter."""
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
_NEEDS_TIME: Final = frozenset({FailureKind.NO_LEADER, FailureKind.OVERLOADED})
"""What another member is likely to say too, if asked at once."""
_USUAL_TIMES: Final = 10.0
_UNKNOWN_ATTEMPT: Final = 10.0
"""How many attempt time-outs an operation may take that was never seen to end."""
_MOST_LABELS: Final = 256


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
        self.balancer = LoadBalancer(strategy, options=self.options.balancer, rng=rng)
        self._rng = rng if rng is not None else random.Random()
        self._refresh = refresh
        endpoints = _checked(members)
        self.tracker = LeadershipTracker(endpoints, max_misses=self.options.max_misses)
        self.balancer.update(endpoints)
        chosen = self.balancer.strategy
        self._is_blind = chosen in _BLIND
        self._is_pinned = chosen not in _UNPINNED
        self._only_followers = chosen in _FOLLOWERS_ONLY
        self._cold = dict.fromkeys(endpoints, self.options.cold_samples)
        self._usual: dict[Hashable, float] = {}

    def update(self, members: Iterable[Endpoint]) -> None:
        """Make `members` the whole membership; what is known of those that stay is kept."""
        endpoints = _checked(members)
        self.tracker.update(endpoints)
        self.balancer.update(endpoints)
        cold = self.options.cold_samples
        self._cold = {m: self._cold.get(m, cold) for m in endpoints}

    # -- choosing ---------------------------------------------------------------------------

    def acquire(
        self, operation: Operation, *, now: float, exclude: tuple[Endpoint, ...] = ()
    ) -> Pick:
        """Choose the member for `operation` and count one in flight there.

        Args:
            operation: what is to be done.
            now: monotonic time in seconds.
            exclude: members to avoid if there is another one.
        """
        kind, label = operation.kind, operation.label
        tracker = self.tracker
        if operation.member is not None:
            return self.balancer.begin(operation.member, now=now, operation=label)
        fallback: tuple[Endpoint, ...] = ()
        if self._is_pinned and kind.needs_leader:
            leader = tracker.leader
            if leader is not None and leader not in exclude:
                return self.balancer.begin(leader, now=now, operation=label)
            candidates = tracker.voters
        elif self._is_blind:
            candidates = tracker.all_voters
            if self._only_followers:
                candidates = tuple(m for m in candidates if m != tracker.leader) or candidates
        elif kind in (OperationClass.STALE_READ, OperationClass.MEMBER):
            candidates = tracker.reachable
        else:
            candidates = tracker.voters
        if self._only_followers and not self._is_blind and kind.is_read:
            candidates, fallback = tracker.followers or candidates, tracker.voters
        return self.balancer.acquire(
            candidates,
            now=now,
            operation=label,
            exclude=exclude,
            fallback=fallback,
            probes=self._teaches(operation),
        )

    def assign(
        self, operation: Operation, *, now: float, exclude: tuple[Endpoint, ...] = ()
    ) -> Endpoint:
        """Choose the member of a stream, which is no request in flight; as `acquire` otherwise."""
        pick = self.acquire(operation, now=now, exclude=exclude)
        pick.done(Outcome.REDIRECT, now=now)
        return pick.endpoint

    def _teaches(self, operation: Operation) -> bool:
        """Whether the time it takes is a sample: a write's depends on the leader and the rest."""
        return operation.timed and (operation.kind.is_read or not self._is_pinned)

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
        member = pick.endpoint
        if not self._teaches(operation):
            pick.done(Outcome.UNTIMED, now=now)
        elif self._cold.get(member, 0) > 0 and not pick.is_probe:
            self._cold[member] -= 1
            pick.done(Outcome.UNTIMED, now=now)
        else:
            pick.done(Outcome.SUCCESS, now=now)
        if operation.timed:
            self._time(operation.label, now - pick.started_at)
        if term is not None and self.tracker.reply(term, leader):
            self._refresh()

    def failed(self, pick: Pick, operation: Operation, kind: FailureKind, *, now: float) -> None:
        """Take in a failure: what it says of the member and of the leadership."""
        outcome = _COUNTED.get(kind, Outcome.REDIRECT)
        if kind is FailureKind.ANSWER:
            outcome = Outcome.SUCCESS if self._teaches(operation) else Outcome.UNTIMED
        pick.done(outcome, now=now)
        if kind is FailureKind.LEARNER:
            self.tracker.found_learner(pick.endpoint)
        elif kind in (FailureKind.UNREACHABLE, FailureKind.INTERRUPTED, FailureKind.TIMED_OUT):
            if operation.kind.needs_leader or kind is FailureKind.UNREACHABLE:
                self.tracker.failure(pick.endpoint)
            self._refresh()
        elif kind in (FailureKind.NO_LEADER, FailureKind.DROPPED, FailureKind.LEADER_LOST):
            self._refresh()

    def _time(self, label: Hashable, elapsed: float) -> None:
        usual = self._usual.get(label)
        if usual is None:
            if len(self._usual) >= _MOST_LABELS:
                self._usual.clear()
            self._usual[label] = elapsed
        elif elapsed > usual:
            self._usual[label] = elapsed
        else:
            self._usual[label] = usual + 0.02 * (elapsed - usual)

    def attempt_timeout(self, operation: Operation) -> float | None:
        """Return how long one attempt may take before another member is asked; None if for ever.

        Only reads are given up: a write that is may have been executed.
        """
        if not operation.kind.is_read or not operation.timed:
            return None
        least = self.options.attempt_timeout
        usual = self._usual.get(operation.label)
        return _UNKNOWN_ATTEMPT * least if usual is None else max(least, _USUAL_TIMES * usual)

    # -- the whole of a request -------------------------------------------------------------

    def plan(
        self, operation: Operation, *, now: float, timeout: float | None = None
    ) -> Plan[ReplyT]:
        """Return the plan of one request.

        Nothing that may have been executed is sent twice, unless it is a read; and nothing is
        sent after the caller's time is over.

        Args:
            operation: what is to be done.
            now: monotonic time in seconds.
            timeout: how long the caller waits, in seconds; None if for ever.
        """
        deadline = None if timeout is None else now + timeout
        give_up = now + self.options.retry_for
        if deadline is not None:
            give_up = min(give_up, deadline)
        may_renew = True
        rounds = 0
        tried: tuple[Endpoint, ...] = ()
        again: Endpoint | None = None
        while True:
            if again is None:
                pick = self.acquire(operation, now=now, exclude=tried)
            else:
                pick = self.balancer.begin(again, now=now, operation=operation.label)
                again = None
            member = pick.endpoint
            seen = (*tried, member)
            has_other = self._has_other(operation, seen)
            limit = None if deadline is None else max(deadline - now, 0.0)
            cut = self.attempt_timeout(operation) if has_other else None
            is_cut = cut is not None and (limit is None or cut < limit)
            event = yield Send(member, cut if is_cut else limit)
            now = event.now
            if isinstance(event, Reply):
                self.succeeded(pick, operation, now=now, term=event.term, leader=event.leader)
                return event.value
            assert isinstance(event, Failure)
            error, kind = event.error, event.kind
            self.failed(pick, operation, kind, now=now)
            wait: Step | None = None
            if kind is FailureKind.UNAUTHENTICATED and may_renew:
                may_renew = False
                again = member
                wait = Authenticate(member, None if deadline is None else deadline - now)
            elif kind is FailureKind.TIMED_OUT and is_cut:
                tried = seen  # our own time-out, so the caller's is not over
            elif not _may_repeat(operation, kind) or now >= give_up:
                raise _noted(error, seen)
            elif kind is FailureKind.DROPPED:
                again, wait = member, Sleep(self.options.dropped_delay)
            elif kind is FailureKind.BEHIND and not has_other:
                raise _noted(error, seen)  # waiting is for the caller to decide
            else:
                tried = seen if has_other else ()
                if not has_other or kind in _NEEDS_TIME:
                    wait = Sleep(self._backoff(rounds))
                    rounds += 1
            if wait is not None:
                if isinstance(wait, Sleep) and now + wait.seconds >= give_up:
                    raise _noted(error, seen)
                event = yield wait
                now = event.now
                if isinstance(event, Failure):  # interrupted, or there is no new token
                    raise event.error

    def _has_other(self, operation: Operation, tried: tuple[Endpoint, ...]) -> bool:
        """Whether there is a member that could serve it and has not been tried."""
        if operation.member is not None:
            return False
        tracker = self.tracker
        stale = operation.kind is OperationClass.STALE_READ
        others = tracker.members if stale else tracker.all_voters
        return any(member not in tried for member in others)

    def _backoff(self, rounds: int) -> float:
        """Return how long to wait after so many pauses: doubling, and not in step with others."""
        delay = self.options.backoff * 2.0 ** min(rounds, 32)
        return min(delay, self.options.max_backoff) * (0.75 + 0.5 * self._rng.random())


def _may_repeat(operation: Operation, kind: FailureKind) -> bool:
    """Whether sending it again can do no harm, and may help."""
    if kind in (FailureKind.ANSWER, FailureKind.CANCELLED, FailureKind.TIMED_OUT):
        return False
    if operation.member is not None or kind is FailureKind.UNAUTHENTICATED:
        return False
    return operation.kind.is_read or not kind.may_have_executed


def _noted(error: BaseException, tried: tuple[Endpoint, ...]) -> BaseException:
    """Return the store's own error, with a note of who was asked if that was not just one."""
    if len(tried) > 1:
        error.add_note(f"lb-strategies asked {', '.join(map(str, tried))}")
    return error


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
