"""What only tasks can meet with: cancellation, coroutines thrown away, loops that come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable

import pytest

from .leader_store import LONGEST, QUICK, Answer, Store, TaskClient


class Gate(TaskClient):
    """Its requests wait until they are let through."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.waiting = 0
        self.may_go = asyncio.Event()

    async def _send_to(self, member: Hashable, request: str, timeout: float | None) -> Answer:
        self.waiting += 1
        await self.may_go.wait()
        return self.store.answer(member)

    def in_flight(self) -> int:
        return sum(s.in_flight for s in self.endpoint_stats().values())


async def test_a_task_that_is_cancelled_gives_its_pick_back() -> None:
    client = Gate(Store())
    tasks = [asyncio.create_task(client._route(kind)) for kind in ("get", "put", "get")]
    while client.waiting < 3:
        await asyncio.sleep(0)
    assert client.in_flight() == 3
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert client.in_flight() == 0
    assert sum(s.cancellations for s in client.endpoint_stats().values()) == 3
    await client._stop_routing()


async def test_a_coroutine_that_is_thrown_away_gives_its_pick_back() -> None:
    client = Gate(Store())
    coroutine = client._route("get")
    coroutine.send(None)
    assert client.in_flight() == 1
    coroutine.close()
    assert client.in_flight() == 0
    await client._stop_routing()


async def test_a_callers_time_limit_is_a_cancellation() -> None:
    client = Gate(Store())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await client._route("put")
    assert client.in_flight() == 0
    await client._stop_routing()


def polls() -> int:
    return sum(task.get_name().startswith("lb-poll ") for task in asyncio.all_tasks())


def test_each_new_loop_gets_tasks_of_its_own() -> None:
    client = TaskClient(Store())

    async def use() -> int:
        await client.wait_for_leader(LONGEST)
        await client._route("put")
        return polls()

    assert [asyncio.run(use()) for _ in range(3)] == [3, 3, 3]


def test_the_tasks_of_a_loop_that_was_left_end() -> None:
    client = TaskClient(Store(), QUICK)

    async def use() -> int:
        await client._route("put")
        return polls()

    async def wait() -> None:
        give_up = time.monotonic() + LONGEST
        while polls():
            assert time.monotonic() < give_up
            await asyncio.sleep(0.002)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(use()) == 3
        assert second.run(use()) == 3
        first.run(wait())
        second.run(client._stop_routing())
        second.run(wait())


def test_closing_in_another_loop_does_no_harm() -> None:
    client = TaskClient(Store())

    async def use() -> None:
        await client._route("put")

    with asyncio.Runner() as first:
        first.run(use())
        asyncio.run(client._stop_routing())
        asyncio.run(use())
