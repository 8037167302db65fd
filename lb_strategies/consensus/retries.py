"""What to do after each failure: the whole of one request, as a plan.

Source: etcd's client (clientv3, retry.go) for what may be sent again, with two differences: a
read is sent again whatever happened, and who was tried already is asked last.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..membership import Endpoint
from ..pick import Outcome, Pick
from .operation import FailureKind, Operation
from .plan import Authenticate, Event, Failure, Plan, Reply, ReplyT, Send, Sleep, Step

if TYPE_CHECKING:
    from .router import ConsensusRouter


def attempt_limit(
    router: ConsensusRouter,
    operation: Operation,
    pick: Pick,
    seen: tuple[Endpoint, ...],
    limit: float,
) -> tuple[float, bool]:
    """Return how long an attempt may take, at most `limit`, and whether it is cut short.

    It is cut if another member of those not `seen` could be asked instead.
    """
    if operation.kind.is_read and _has_other(router, operation, seen):
        cut = router.attempt_timeout(operation, pick)
        if cut is not None and cut < limit:
            return cut, True
    return limit, False


def make_plan(
    router: ConsensusRouter,
    operation: Operation,
    now: float,
    timeout: float | None,
    first: Pick | None,
) -> Plan[ReplyT]:
    """Return the plan of one request; see `ConsensusRouter.plan`."""
    deadline = inf if timeout is None else now + timeout
    give_up = min(now + router.options.retry_for, deadline)
    may_renew = True
    rounds = 0
    tried: tuple[Endpoint, ...] = ()
    again: Endpoint | None = None
    pick = first
    event: Event[ReplyT] | None = None
    failure: Failure | None = None
    try:
        while True:
            if again is not None and again in router.everybody(operation):
                pick = router.balancer.begin(again, now=now, operation=operation.label)
                if not operation.timed:
                    pick.done(Outcome.REDIRECT, now=now)
            elif first is None:
                pick = router.acquire(operation, now=now, exclude=tried)
            else:
                pick, first = first, None
            again = None
            member = pick.endpoint
            seen = (*tried, member)
            limit, is_cut = attempt_limit(router, operation, pick, seen, deadline - now)
            event = yield Send(member, None if limit == inf else limit)
            now = event.now
            if isinstance(event, Reply):
                router.succeeded(pick, operation, now=now, term=event.term, leader=event.leader)
                return event.value
            assert isinstance(event, Failure)
            failure = event
            kind = failure.kind
            router.failed(pick, operation, kind, now=now)

            wait: Step | None = None
            if kind is FailureKind.UNAUTHENTICATED and may_renew:
                may_renew = False
                again = member
                wait = Authenticate(member, None if deadline == inf else deadline - now)
            elif kind is FailureKind.TIMED_OUT and is_cut:
                tried = seen  # our own time-out; the caller's is not over
            elif not _may_repeat(operation, kind) or now >= give_up:
                raise _noted(failure, seen)
            elif kind is FailureKind.DROPPED:
                again = member
                wait = Sleep(router.options.dropped_delay)
            elif _has_other(router, operation, seen):
                tried = seen
                if kind is FailureKind.OVERLOADED:  # the others are likely to be, too
                    wait = Sleep(router.backoff(rounds))
                    rounds += 1
            elif kind is FailureKind.BEHIND:
                raise _noted(failure, seen)  # whether to wait for it is the caller's to say
            else:
                tried = ()
                wait = Sleep(router.backoff(rounds))
                rounds += 1

            if now >= deadline or (isinstance(wait, Sleep) and now + wait.seconds >= give_up):
                raise _noted(failure, seen)
            if wait is not None:
                event = yield wait
                now = event.now
                if isinstance(event, Failure):  # interrupted, or there is no new token
                    raise event.error
                if now >= deadline:
                    raise _noted(failure, seen)
    except BaseException:
        if pick is not None:  # thrown away on the way; otherwise it was given back before
            pick.done(Outcome.CANCELLED, now=pick.started_at)
        event = failure = None  # an error that leads to itself is freed late
        raise


def _has_other(router: ConsensusRouter, operation: Operation, seen: tuple[Endpoint, ...]) -> bool:
    """Whether there is a member that could serve it and was not asked."""
    others = router.everybody(operation)
    return len(others) > len(seen) or any(member not in seen for member in others)


def _may_repeat(operation: Operation, kind: FailureKind) -> bool:
    """Whether sending it again can do no harm, and may help."""
    if kind in (FailureKind.ANSWER, FailureKind.CANCELLED, FailureKind.TIMED_OUT):
        return False
    if operation.member is not None or kind is FailureKind.UNAUTHENTICATED:
        return False
    return operation.kind.is_read or not kind.may_have_executed


def _noted(failure: Failure, asked: tuple[Endpoint, ...]) -> BaseException:
    """Return the store's own error, with a note of who was asked if that was not just one."""
    if len(asked) > 1:
        failure.error.add_note(f"lb-strategies asked {', '.join(map(str, asked))}")
    return failure.error
