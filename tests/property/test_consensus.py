"""Any sequence of events against requests that overlap: what holds whatever happens.

* What may have been executed is sent again only if it is a read.
* Attempts are bounded, and nothing is sent, or allowed to last, beyond the caller's time.
* Every pick is given back: in the end nothing is in flight.
* The leader is one that was named at the highest term, and one of the members.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lb_strategies import (
    ConsensusOptions,
    FailureKind,
    LoadBalancingStrategy,
    MemberStatus,
    Operation,
    OperationClass,
    StatusRefusedError,
)
from lb_strategies.consensus import (
    Authenticate,
    ConsensusRouter,
    Done,
    Failure,
    Plan,
    Reply,
    Send,
    Sleep,
)

NAMES = "abcde"
RETRY_FOR = 2.0
LEAST_PAUSE = 0.75 * 0.02

memberships = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
members = st.sampled_from(NAMES)
kinds = st.sampled_from(OperationClass)
failures = st.sampled_from(FailureKind)
terms = st.integers(0, 6)
seconds = st.sampled_from([0.0, 0.0005, 0.002, 0.03, 0.6, 1.2, 12.0])


@dataclass
class Request:
    """A plan under way, and what was seen of it."""

    operation: Operation
    plan: Plan[None]
    began: float
    deadline: float | None
    step: Send | Sleep | Authenticate
    sent: int = 1
    doubtful: bool = False
    """Whether an attempt may have been executed, which a read need not mind."""
    error: BaseException | None = None
    renewals: int = 0
    pauses: list[float] = field(default_factory=list)


class Requests(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.open: list[Request] = []
        self.named: dict[int, set[Hashable]] = {}
        self.members: tuple[str, ...] = ()

    @initialize(
        strategy=st.sampled_from(LoadBalancingStrategy), names=memberships, seed=st.integers(0, 99)
    )
    def start(self, strategy: LoadBalancingStrategy, names: list[str], seed: int) -> None:
        self.router = ConsensusRouter(
            names,
            strategy,
            options=ConsensusOptions(retry_for=RETRY_FOR, cold_samples=1, attempt_timeout=0.1),
            rng=random.Random(seed),
        )
        self.members = tuple(names)

    # -- requests ---------------------------------------------------------------------------

    @rule(kind=kinds, named=members, timeout=st.sampled_from([None, 0.0, 0.01, 0.5, 5.0]))
    def begin(self, kind: OperationClass, named: str, timeout: float | None) -> None:
        member = named if kind is OperationClass.MEMBER and named in self.members else None
        operation = Operation(kind, kind.value, member=member)
        plan: Plan[None] = self.router.plan(operation, now=self.now, timeout=timeout)
        deadline = None if timeout is None else self.now + timeout
        request = Request(operation, plan, self.now, deadline, next(plan))
        self.open.append(request)
        self.check_step(request)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), took=seconds, kind=failures)
    def fail(self, data: st.DataObject, took: float, kind: FailureKind) -> None:
        request = data.draw(st.sampled_from(self.open))
        self.now += took
        if not isinstance(request.step, Send):
            self.go_on(request, Done(self.now))
            return
        request.error = RuntimeError(kind.value)
        if kind.may_have_executed:
            request.doubtful = True
        self.go_on(request, Failure(request.error, kind, self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), took=seconds, term=terms, hint=st.none() | members)
    def answer(self, data: st.DataObject, took: float, term: int, hint: str | None) -> None:
        request = data.draw(st.sampled_from(self.open))
        self.now += took
        if isinstance(request.step, Send):
            if hint is not None:
                self.named.setdefault(term, set()).add(hint)
            self.go_on(request, Reply(None, self.now, term, hint))
        else:
            self.go_on(request, Done(self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), thrown=st.booleans())
    def interrupt(self, data: st.DataObject, thrown: bool) -> None:
        request = data.draw(st.sampled_from(self.open))
        if thrown:
            self.open.remove(request)
            request.plan.close()
        else:
            request.error = KeyboardInterrupt()
            request.doubtful = True
            self.go_on(request, Failure(request.error, FailureKind.CANCELLED, self.now))
            assert request not in self.open, "an interruption ends it"

    def go_on(self, request: Request, event: Reply[None] | Failure | Done) -> None:
        try:
            request.step = request.plan.send(event)
        except StopIteration:
            self.open.remove(request)
        except BaseException as error:
            self.open.remove(request)
            if error is not request.error:  # the store's own, of the last attempt
                raise
        else:
            request.sent += isinstance(request.step, Send)
            request.renewals += isinstance(request.step, Authenticate)
            if isinstance(request.step, Sleep):
                request.pauses.append(request.step.seconds)
            self.check_step(request)

    def check_step(self, request: Request) -> None:
        step = request.step
        is_read = request.operation.kind.is_read
        assert is_read or not request.doubtful, "it may have been executed"
        assert request.renewals <= 1
        left = None if request.deadline is None else request.deadline - self.now
        if isinstance(step, Sleep):
            assert step.seconds >= LEAST_PAUSE
            assert self.now + step.seconds < request.began + RETRY_FOR
            assert left is None or step.seconds < left
        else:
            if left is not None:
                assert step.timeout is not None
                assert step.timeout <= left
                assert step.timeout > 0 or request.sent == 1
            if not is_read and isinstance(step, Send):
                assert step.timeout == left, "no time-out of ours for what is no read"
        if isinstance(step, Send) and request.operation.member is not None:
            assert step.endpoint == request.operation.member
        # Everybody once, and once more after each pause, the renewal, and our own time-outs.
        rounds = 1 + len(request.pauses)
        assert request.sent <= rounds * len(NAMES) + 1
        assert len(request.pauses) <= RETRY_FOR / LEAST_PAUSE + 1

    # -- the cluster ------------------------------------------------------------------------

    @rule(
        member=members,
        term=terms,
        leader=st.none() | members,
        learner=st.booleans(),
        has_leader=st.sampled_from([None, True, False]),
    )
    def status(
        self, member: str, term: int, leader: str | None, learner: bool, has_leader: bool | None
    ) -> None:
        if leader is not None and member in self.members:
            self.named.setdefault(term, set()).add(leader)
        self.router.tracker.status(
            member, MemberStatus(term, leader, learner=learner, has_leader=has_leader)
        )

    @rule(member=members, times=st.integers(1, 3), refused=st.booleans())
    def miss(self, member: str, times: int, refused: bool) -> None:
        for _ in range(times):
            error = StatusRefusedError("no") if refused else TimeoutError()
            self.router.poll_failed(member, error)

    @rule(names=memberships)
    def change(self, names: list[str]) -> None:
        self.router.update(names)
        self.members = tuple(names)

    @rule(took=seconds)
    def wait(self, took: float) -> None:
        self.now += took

    # -- what always holds ------------------------------------------------------------------

    @invariant()
    def the_leader_was_named_at_the_highest_term(self) -> None:
        if not self.members:
            return
        tracker = self.router.tracker
        if tracker.leader is not None:
            assert tracker.leader in self.named[tracker.term]
            assert tracker.leader in tracker.members

    @invariant()
    def there_is_always_somebody_to_ask(self) -> None:
        if not self.members:
            return
        tracker = self.router.tracker
        assert tracker.members == self.members
        for some in (tracker.reachable, tracker.voters, tracker.all_voters):
            assert some
            assert set(some) <= set(self.members)
        for followers in (tracker.followers, tracker.all_followers, tracker.replicas):
            assert tracker.leader not in followers

    @invariant()
    def what_is_in_flight_was_sent(self) -> None:
        if not self.members:
            return
        in_flight = sum(s.in_flight for s in self.router.balancer.snapshot(now=self.now).values())
        assert in_flight <= sum(isinstance(request.step, Send) for request in self.open)

    def teardown(self) -> None:
        for request in self.open:
            request.plan.close()
        if self.members:
            stats = self.router.balancer.snapshot(now=self.now).values()
            assert not any(s.in_flight for s in stats)


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
