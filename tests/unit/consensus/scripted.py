"""A store that answers as it is told, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from lb_strategies import ConsensusOptions, FailureKind, MemberStatus, Operation, OperationClass
from lb_strategies import LoadBalancingStrategy as Strategy
from lb_strategies.consensus import (
    Authenticate,
    ConsensusRouter,
    Done,
    Failure,
    LeadershipTracker,
    Plan,
    Reply,
    Send,
    Sleep,
)
from tests.unit.scripted import MS, Script, in_flight

ABC = ("a", "b", "c")
READ = Operation(OperationClass.LINEARIZABLE_READ, "range")
STALE = Operation(OperationClass.STALE_READ, "stale range")
WRITE = Operation(OperationClass.WRITE, "put")
LEADER_STREAM = Operation(OperationClass.LEADER_STREAM, "keep-alive")
STICKY_STREAM = Operation(OperationClass.STICKY_STREAM, "watch")

Step = Send | Sleep | Authenticate
Says = FailureKind | None
"""How an attempt ends; None for an answer."""


class StoreError(Exception):
    """What a store's client raises."""

    def __init__(self, kind: FailureKind, member: Hashable) -> None:
        super().__init__(f"{kind.value} at {member}")
        self.kind = kind
        self.member = member


def led(target: ConsensusRouter | LeadershipTracker, leader: Hashable, *, term: int = 1) -> None:
    """Let every member say that `leader` leads."""
    tracker = target.tracker if isinstance(target, ConsensusRouter) else target
    for member in tracker.members:
        tracker.status(member, MemberStatus(term=term, leader=leader))


def missed(tracker: LeadershipTracker, *members: Hashable) -> None:
    """Put `members` out by polls that they miss."""
    for member in members:
        tracker.poll_missed(member)
        tracker.poll_missed(member)


def make_router(
    strategy: Strategy | str = Strategy.HYBRID,
    *,
    members: Iterable[Hashable] = ABC,
    leader: Hashable | None = "a",
    rng: random.Random | None = None,
    refresh: Callable[[], object] = lambda: None,
    **options: Any,
) -> ConsensusRouter:
    """Return a router whose leader is known, with pauses that are not random."""
    router = ConsensusRouter(
        members,
        strategy,
        options=ConsensusOptions(**options),
        rng=rng if rng is not None else Script(0.5),
        refresh=refresh,
    )
    if leader is not None:
        led(router, leader)
    return router


class Play:
    """Drives plans of `router` in virtual time and keeps their steps.

    Args:
        router: whose plans.
        says: given a step and how many requests were sent before it, how the attempt ends and
            how many seconds it takes.
    """

    def __init__(
        self,
        router: ConsensusRouter,
        says: Callable[[Send, int], tuple[Says, float]],
        *,
        now: float = 100.0,
    ) -> None:
        self.router = router
        self.now = now
        self.steps: list[Step] = []
        self._says = says
        self.on_authenticate: Callable[[], BaseException | None] = lambda: None

    @classmethod
    def of(cls, router: ConsensusRouter, *says: Says, took: float = MS) -> Play:
        """Return one whose attempts end so, one after the other; answered after the last."""
        script = dict(enumerate(says))
        return cls(router, lambda step, sent: (script.get(sent), took))

    def __call__(self, operation: Operation, *, timeout: float | None = None) -> Hashable:
        """Do one request; return the member that answered it."""
        plan: Plan[Hashable] = self.router.plan(operation, now=self.now, timeout=timeout)
        event: Reply[Hashable] | Failure | Done | None = None
        while True:
            try:
                step = next(plan) if event is None else plan.send(event)
            except StopIteration as stop:
                answered: Hashable = stop.value
                return answered
            event = self._do(step)

    def _do(self, step: Step) -> Reply[Hashable] | Failure | Done:
        sent = len(self.sent)
        self.steps.append(step)
        if isinstance(step, Sleep):
            self.now += step.seconds
            return Done(self.now)
        if isinstance(step, Authenticate):
            self.now += MS
            error = self.on_authenticate()
            if error is not None:
                return Failure(error, FailureKind.CANCELLED, self.now)
            return Done(self.now)
        kind, seconds = self._says(step, sent)
        if step.timeout is not None and seconds > step.timeout:
            kind, seconds = FailureKind.TIMED_OUT, step.timeout
        self.now += seconds
        if kind is None:
            return Reply(step.endpoint, self.now)
        return Failure(StoreError(kind, step.endpoint), kind, self.now)

    @property
    def sent(self) -> list[Send]:
        """The attempts."""
        return [step for step in self.steps if isinstance(step, Send)]

    @property
    def asked(self) -> list[Hashable]:
        """The members that were asked, in order."""
        return [step.endpoint for step in self.sent]

    @property
    def pauses(self) -> list[float]:
        """The pauses, in seconds."""
        return [step.seconds for step in self.steps if isinstance(step, Sleep)]

    def assert_nothing_in_flight(self) -> None:
        assert set(in_flight(self.router.balancer, now=self.now).values()) == {0}
