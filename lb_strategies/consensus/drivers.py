"""Doing what a plan says: all that differs between threads and tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from .operation import FailureKind
from .plan import Authenticate, Done, Event, Failure, Plan, Reply, ReplyT, Send, Sleep


def drive(
    plan: Plan[ReplyT],
    send: Callable[[Send], Reply[ReplyT] | Failure],
    authenticate: Callable[[Authenticate], None],
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplyT:
    """Do what `plan` says in the calling thread and return what it returns.

    Args:
        plan: a new plan.
        send: makes one attempt; what it raises (an interruption) ends the plan.
        authenticate: gets a new token; an ``Exception`` from it is raised to the caller.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """
    try:
        step = next(plan)
        while True:
            event: Event[ReplyT]
            try:
                if isinstance(step, Send):
                    event = send(step)
                elif isinstance(step, Sleep):
                    sleep(step.seconds)
                    event = Done(clock())
                else:
                    authenticate(step)
                    event = Done(clock())
            except BaseException as error:
                event = Failure(error, FailureKind.CANCELLED, clock())
            step = plan.send(event)
    except StopIteration as stop:
        reply: ReplyT = stop.value
        return reply


async def drive_async(
    plan: Plan[ReplyT],
    send: Callable[[Send], Awaitable[Reply[ReplyT] | Failure]],
    authenticate: Callable[[Authenticate], Awaitable[None]],
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ReplyT:
    """Do what `plan` says in the running task; otherwise as `drive`."""
    try:
        step = next(plan)
        while True:
            event: Event[ReplyT]
            try:
                if isinstance(step, Send):
                    event = await send(step)
                elif isinstance(step, Sleep):
                    await sleep(step.seconds)
                    event = Done(clock())
                else:
                    await authenticate(step)
                    event = Done(clock())
            except BaseException as error:
                event = Failure(error, FailureKind.CANCELLED, clock())
            step = plan.send(event)
    except StopIteration as stop:
        reply: ReplyT = stop.value
        return reply
