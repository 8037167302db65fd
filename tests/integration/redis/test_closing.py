"""Clients that are closed, abandoned or interrupted while requests are in flight."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .drivers import Connector, Driver
from .nodes import KEYS, frozen

pytestmark = pytest.mark.integration

STALL = 0.3
only_asyncio = pytest.mark.parametrize("mode", ["asyncio"], indirect=True)
only_sync = pytest.mark.parametrize("mode", ["sync"], indirect=True)


async def warm(connect: Connector, servers: RedisClusterServers, **options: Any) -> Driver:
    client = await connect.ours(servers, "latency_based", **options)
    assert (await client.reads(count=60, keys=KEYS)).errors == []
    return client


OWN_FAULTS = (
    "closed file",
    "closed file.",
    "'NoneType' object has no attribute 'name'",
    "'NoneType' object has no attribute 'writelines'",
)


async def test_a_client_is_closed_with_requests_in_flight(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """They fail as redis-py has it or are answered; the client can be used again, or never again.

    redis-py's synchronous parser reads on in a buffer that was closed: a ``ValueError``. Its
    asyncio connection, closed while it is made, has no writer: an ``AttributeError``. An
    asyncio pipeline of redis-py 5.3 looks for the default node, which is gone.
    """
    client = await warm(connect, shard, **connect.retries(1), socket_timeout=1)
    commands = [("get", "key:0"), ("set", "w", "v"), ("hgetall", "missing")] * 4
    with frozen(*shard.nodes):
        running = [asyncio.ensure_future(client.together(commands)) for _ in range(2)]
        running.append(asyncio.ensure_future(client.pipeline([("get", key) for key in KEYS])))
        for _ in range(10):
            await asyncio.sleep(STALL / 5)
            if client.total("in_flight") == 2 * len(commands) + 1:
                break
        assert client.total("in_flight") == 2 * len(commands) + 1
        await client.close()
    for outcome in await asyncio.gather(*running, return_exceptions=True):
        for result in outcome if isinstance(outcome, list) else [outcome]:
            if isinstance(result, BaseException) and not str(result).endswith(OWN_FAULTS):
                assert type(result).__module__ == library.errors.__name__, repr(result)
    assert client.total("in_flight") == 0
    if connect.mode == "asyncio" and library.STAYS_CLOSED:
        with pytest.raises(library.ClusterException, match="closed"):
            await client.get("key:0")
        with pytest.raises(library.ClusterException, match="closed"):
            await client.pipeline([("get", "key:0")])
        return
    log = await client.reads(count=200, keys=KEYS)
    assert log.errors == []
    assert log.values == [KEYS[i % len(KEYS)] for i in range(200)]
    assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)


async def test_a_closed_client_is_used_again(
    connect: Connector, shard: RedisClusterServers
) -> None:
    if connect.mode == "asyncio" and library.STAYS_CLOSED:
        pytest.skip(f"an asyncio client of {library.TITLE} that was closed stays closed")
    client = await warm(connect, shard)
    known = client.total("picks")
    for _ in range(2):
        await client.close()
        assert (await client.reads(count=30, keys=KEYS)).errors == []
    assert client.total("picks") == known + 60  # what it had learned is not lost
    assert client.total("failures") == client.total("in_flight") == 0


@library.drops_coroutines
@only_asyncio
async def test_an_async_generator_is_thrown_away_in_the_middle_of_a_read(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await warm(connect, shard)

    async def values() -> AsyncIterator[Any]:
        for key in KEYS:
            yield await client.get(key)

    async def look() -> None:
        async for _ in values():
            pass

    generators = [values(), client.client.scan_iter(match="key:*"), client.client.hscan_iter("h")]
    with frozen(*shard.nodes):
        steps = [generator.__anext__() for generator in generators]
        for step in steps:
            step.send(None)
        looking = asyncio.ensure_future(look())
        await asyncio.sleep(STALL)
        assert client.total("in_flight") >= 4  # a scan of the keys may ask several nodes
        looking.cancel()
        for step in steps:
            step.close()
        del step, steps, generators
        gc.collect()
        await asyncio.gather(looking, return_exceptions=True)
        await asyncio.sleep(0)
        assert client.total("in_flight") == 0
    assert (await client.reads(count=30, keys=KEYS)).values == list(KEYS[:30])


@library.drops_coroutines  # else sockets stay open, and are any later test's to be warned of
def test_a_coroutine_is_thrown_away_after_its_loop_has_ended(shard: RedisClusterServers) -> None:
    client: Any = library.OURS["asyncio"](
        host=shard.host,
        port=shard.port,
        load_balancing_strategy="latency_based",
        decode_responses=True,
    )

    def in_flight() -> int:
        return sum(stats.in_flight for stats in client.endpoint_stats().values())

    async def begin() -> list[Any]:
        await asyncio.gather(*(client.get(key) for key in KEYS))
        pipe = client.pipeline()
        pipe.get("key:0")
        running = [client.get("key:0"), pipe.execute()]
        with frozen(*shard.nodes):
            for coroutine in running:
                coroutine.send(None)
            assert in_flight() == 2
            await client.aclose()
            return running  # before the loop has been looked at for a stall

    running = asyncio.run(begin())
    time.sleep(STALL)
    for coroutine in running:
        with suppress(RuntimeError):  # redis-py has no loop to disconnect on, and says so
            coroutine.close()
    assert in_flight() == 0


class Interruption(BaseException):
    """As Ctrl-C, or a worker's time limit, in the middle of anything."""


@contextmanager
def lost_in_callbacks() -> Iterator[None]:
    """Let an interruption be lost that hits a finalizer or a callback of a weak reference.

    Python cannot raise it there, for nobody would catch it, and reports it here instead: the
    garbage collector may run such code of any object, a past thread of ours for instance, between
    any two lines of `work`. Whatever else is reported here is a failure, as always.
    """
    report = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Interruption):
            report(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = report


def interrupt(work: Callable[[], object], after: float) -> None:
    """Do `work` over and over, and have it interrupted by a signal, `after` seconds from now."""
    hit = threading.Event()  # in case the exception is lost

    def handler(number: int, frame: object) -> None:
        hit.set()
        raise Interruption

    arguments = (threading.get_ident(), signal.SIGUSR1)
    previous = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(after, signal.pthread_kill, arguments)
    try:
        with suppress(Interruption):
            timer.start()
            while not hit.is_set():
                work()
    finally:
        signal.signal(signal.SIGUSR1, previous)


def interrupt_thread(work: Callable[[], object], after: float) -> None:
    """Do the same in a thread, where no signal arrives: as a debugger or a notebook does it."""
    works, stop = threading.Event(), threading.Event()

    def run() -> None:
        with suppress(Interruption):
            works.set()
            while not stop.is_set():
                work()

    thread = threading.Thread(target=run)
    thread.start()
    works.wait(10)
    time.sleep(after)
    ident = ctypes.c_ulong(thread.ident or 0)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Interruption)) == 1
    thread.join(timeout=1)
    stop.set()
    thread.join(timeout=30)
    assert not thread.is_alive()


@only_sync
@pytest.mark.parametrize("kind", ["read", "write", "pipeline"])
async def test_a_command_that_waits_is_interrupted(
    connect: Connector, shard: RedisClusterServers, kind: str
) -> None:
    client = await warm(connect, shard)
    inner = client.client
    work: Callable[[], object]
    if kind == "pipeline":
        work = lambda: inner.pipeline().get("key:0").get("key:1").execute()  # noqa: E731
    else:
        work = partial(inner.get, "key:0") if kind == "read" else partial(inner.set, "w", "v")
    before = client.total("cancellations")
    with frozen(*shard.nodes):
        for _ in range(3):
            interrupt(work, STALL / 3)
            assert client.total("in_flight") == 0
    assert client.total("cancellations") == before + 3
    assert (await client.reads(count=60, keys=KEYS)).values == list(KEYS[:60])


@only_sync
@pytest.mark.parametrize("how", [interrupt, interrupt_thread])
async def test_interruptions_at_any_moment(
    connect: Connector, shard: RedisClusterServers, how: Callable[..., None]
) -> None:
    """A count that is left behind would make its node look loaded for ever."""
    client = await warm(connect, shard)
    rng = random.Random(1)

    def work() -> None:
        for key in KEYS:
            assert client.client.get(key) == key

    with lost_in_callbacks(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # redis-py, interrupted as it connects
        for _ in range(300):
            how(work, rng.uniform(0.001, 0.004))
        gc.collect()
    assert (await client.reads(count=60, keys=KEYS)).values == list(KEYS[:60])
    assert client.total("in_flight") == 0


@only_sync
async def test_who_is_interrupted_while_connecting_leaves_no_reply_to_others(
    connect: Connector, shard: RedisClusterServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stock client's next read is answered with the reply to HELLO."""
    client = await warm(connect, shard, protocol=3)
    client.client.disconnect_connection_pools()

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise Interruption

    with frozen(*shard.nodes):
        with monkeypatch.context() as patch:
            # After HELLO was sent, before its reply is read.
            patch.setattr(library.connection.AbstractConnection, "read_response", interrupted)
            for key in KEYS[:6]:
                with pytest.raises(Interruption):
                    client.client.get(key)
        reading = [asyncio.ensure_future(client.get(key)) for key in KEYS[:3]]
        await asyncio.sleep(STALL)
    assert await asyncio.gather(*reading) == list(KEYS[:3])
