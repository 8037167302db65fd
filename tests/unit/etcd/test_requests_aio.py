"""The caller's requests reach one stream after the other, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from lb_strategies_etcd._requests_aio import AsyncRequests


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def take(stream: AsyncIterator[object], taken: list[object]) -> None:
    async for request in stream:
        taken.append(request)  # noqa: PERF401  # also what came before an error


async def test_a_stream_gets_what_comes_until_the_end() -> None:
    sent: list[object] = []
    requests = AsyncRequests(sent.append)
    taken: list[object] = []
    stream = asyncio.create_task(take(requests.feed(["first"]), taken))
    await requests.read([1, 2, 3])
    await stream
    assert taken == ["first", 1, 2, 3]
    assert sent == [1, 2, 3]


async def test_no_more_is_read_than_is_taken() -> None:
    read: list[int] = []

    async def source() -> AsyncIterator[object]:
        for number in range(5):
            read.append(number)
            yield number

    requests = AsyncRequests(lambda request: None)
    reading = asyncio.create_task(requests.read(source()))
    await settle()
    assert read == [0]
    stream = requests.feed([])
    assert await anext(stream) == 0
    await settle()
    assert read == [0, 1]
    requests.end()
    await reading


async def test_the_next_stream_gets_what_the_one_before_did_not_take() -> None:
    requests = AsyncRequests(lambda request: None)
    first: list[object] = []
    second: list[object] = []
    tasks = [asyncio.create_task(take(requests.feed([]), first))]
    await requests.put(1)
    requests.detach()
    await requests.put(2)  # does not wait: nobody takes it now
    await settle()
    assert first == [1]
    assert tasks[0].done()
    tasks.append(asyncio.create_task(take(requests.feed(["again"]), second)))
    await requests.put(3)
    requests.end()
    await asyncio.gather(*tasks)
    assert second == ["again", 2, 3]


async def test_the_end_comes_after_what_waits() -> None:
    requests = AsyncRequests(lambda request: None)
    await requests.put(1)
    requests.end()
    taken: list[object] = []
    await take(requests.feed([]), taken)
    assert taken == [1]


async def test_the_callers_error_comes_out_of_the_stream() -> None:
    async def source() -> AsyncIterator[object]:
        yield 1
        raise ValueError("the caller's")

    requests = AsyncRequests(lambda request: None)
    reading = asyncio.create_task(requests.read(source()))
    taken: list[object] = []
    with pytest.raises(ValueError, match="the caller's"):
        await take(requests.feed([]), taken)
    assert taken == [1]
    await reading
