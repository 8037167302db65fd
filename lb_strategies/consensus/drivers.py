"""Doing what a plan says: all that differs between threads and tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from .operation import FailureKind
from .plan import Authenticate, Done, Event, Failure, Plan, Reply, ReplyT, Send, Sleep, Step


def drive(
    plan: Plan[ReplyT],
    send: Callable[[Send], Reply[ReplyT] | Failure],
    authenticate: Callable[[Authenticate], None],
    *,
    first: Failure | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplyT:
    """Do what `plan` says in the calling thread and return what it returns.

    Args:
        plan: a new plan.
        send: makes one attempt; what it raises (an interruption) ends the plan.
        authenticate: gets a new token; an ``Exception`` from it is raised to the caller.
        first: how the first attempt ended, if it was made before.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    # The event is no variable here, or the error in it would lead to this frame and back.
    def do(step: Step) -> Event[ReplyT]:
        try:
            if isinstance(step, Send):
                return send(step)
            if isinstance(step, Sleep):
                sleep(step.seconds)
            else:
                authenticate(step)
            return Done(clock())
        except BaseException as error:
            return Failure(error, FailureKind.CANCELLED, clock())

    try:
        step = next(plan)
        if first is not None:
            step = plan.send(first)
        while True:
            step = plan.send(do(step))
    except StopIteration as stop:
        reply: ReplyT = stop.value
        return reply
    finally:
        plan.close()  # interrupted between two steps, it still holds a pick


async def drive_async(
    plan: Plan[ReplyT],
    send: Callable[[Send], Awaitable[Reply[ReplyT] | Failure]],
    authenticate: Callable[[Authenticate], Awaitable[None]],
    *,
    first: Failure | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ReplyT:
    """Do what `plan` says in the running task; otherwise as `drive`."""

    async def do(step: Step) -> Event[ReplyT]:
        try:
            if isinstance(step, Send):
                return await send(step)
            if isinstance(step, Sleep):
                await sleep(step.seconds)
            else:
                await authenticate(step)
            return Done(clock())
        except BaseException as error:
            return Failure(error, FailureKind.CANCELLED, clock())

    try:
        step = next(plan)
        if first is not None:
            step = plan.send(first)
        while True:
            step = plan.send(await do(step))
    except StopIteration as stop:
        reply: ReplyT = stop.value
        return reply
    finally:
        plan.close()
