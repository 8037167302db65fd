"""The two drivers do what a plan says, and give back what they hold when they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import TypeAlias

import pytest

from lb_strategies import FailureKind
from lb_strategies.consensus import (
    Authenticate,
    ConsensusRouter,
    Failure,
    Plan,
    Reply,
    Send,
    Sleep,
    drive,
    drive_async,
)
from tests.unit.scripted import in_flight

from .scripted import WRITE, StoreError, make_router

Outcome: TypeAlias = FailureKind | BaseException | None


class World:
    """Ends of attempts, one after the other, and what was done; time stands still."""

    def __init__(self, *ends: Outcome) -> None:
        self.ends = list(ends)
        self.done: list[object] = []
        self.now = 0.0
        self.on_clock: BaseException | None = None
        self.on_pause: BaseException | None = None

    def clock(self) -> float:
        if self.on_clock is not None:
            raise self.on_clock
        return self.now

    def send(self, step: Send) -> Reply[Hashable] | Failure:
        self.done.append("send")
        end = self.ends.pop(0)
        if isinstance(end, BaseException):
            raise end
        if end is not None:
            return Failure(StoreError(end, step.endpoint), end, self.now)
        return Reply(step.endpoint, self.now)

    def sleep(self, seconds: float) -> None:
        self.done.append(Sleep(seconds))
        self.now += seconds
        if self.on_pause is not None:
            raise self.on_pause

    def authenticate(self, step: Authenticate) -> None:
        self.done.append(step)


def run_sync(plan: Plan[Hashable], world: World) -> Hashable:
    return drive(plan, world.send, world.authenticate, clock=world.clock, sleep=world.sleep)


def run_async(plan: Plan[Hashable], world: World) -> Hashable:
    async def send(step: Send) -> Reply[Hashable] | Failure:
        return world.send(step)

    async def sleep(seconds: float) -> None:
        world.sleep(seconds)

    async def authenticate(step: Authenticate) -> None:
        world.authenticate(step)

    coroutine = drive_async(plan, send, authenticate, clock=world.clock, sleep=sleep)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        answered: Hashable = stop.value
        return answered
    raise AssertionError("nothing here waits")


Run: TypeAlias = Callable[[Plan[Hashable], World], Hashable]
both = pytest.mark.parametrize("run", [run_sync, run_async], ids=["sync", "asyncio"])


def requests(router: ConsensusRouter) -> int:
    return sum(in_flight(router.balancer, now=0.0).values())


@both
def test_every_step_is_done_in_order(run: Run) -> None:
    router = make_router()
    world = World(FailureKind.DROPPED, FailureKind.UNAUTHENTICATED, None)
    assert run(router.plan(WRITE, now=0.0), world) == "a"
    assert world.done == ["send", Sleep(0.02), "send", Authenticate("a"), "send"]
    assert requests(router) == 0


@both
@pytest.mark.parametrize("end", [KeyboardInterrupt(), asyncio.CancelledError(), MemoryError()])
def test_what_an_attempt_raises_ends_it(run: Run, end: BaseException) -> None:
    router = make_router()
    with pytest.raises(type(end)) as caught:
        run(router.plan(WRITE, now=0.0), World(end))
    assert caught.value is end
    assert requests(router) == 0
    assert router.balancer.snapshot(now=0.0)["a"].cancellations == 1


@both
def test_an_interrupted_pause_ends_it(run: Run) -> None:
    router = make_router()
    world = World(FailureKind.DROPPED)
    world.on_pause = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(router.plan(WRITE, now=0.0), world)
    assert requests(router) == 0


@both
def test_an_interruption_between_two_steps_ends_it(run: Run) -> None:
    """Nothing can tell the plan any more; the driver closes it."""
    router = make_router()
    world = World(ValueError())
    world.on_clock = KeyboardInterrupt()
    plan: Plan[Hashable] = router.plan(WRITE, now=0.0)
    with pytest.raises(KeyboardInterrupt):
        run(plan, world)
    assert requests(router) == 0
