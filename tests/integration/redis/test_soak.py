"""Many threads or tasks, replicas that freeze, readers that give up: nothing is lost or mixed up.

``LB_SOAK_SECONDS`` is the length for each client, 30 by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import pytest
import redis

from bench.servers.redis import RedisClusterServers, RedisNode

from . import library

SECONDS = float(os.environ.get("LB_SOAK_SECONDS", "30"))
LIMIT = round(SECONDS) + 60
WORKERS = 64
KEYS = tuple(f"soak:{i}" for i in range(200))
SOCKET_TIMEOUT = 0.5
SLACK = 64 * 4 * 8_000
"""Bytes that may stay allocated: 64 connections to each of 4 nodes, with their buffers."""

pytestmark = [pytest.mark.integration(limit=LIMIT), pytest.mark.long]
RACE = "'NoneType' object has no attribute 'writelines'"
"""redis-py's asyncio client, with round_robin too: one task's time-out has free connections cut
while another task is connecting on one of them."""


def check(key: str, value: str | None) -> None:
    """Raise if `value` was never written for `key`."""
    if value is None or value.partition("=")[0] != key or not value.partition("=")[2].isdigit():
        raise AssertionError(f"{key} has the value {value!r}")


@contextlib.contextmanager
def faults(servers: RedisClusterServers) -> Iterator[Counter[str]]:
    """Freeze and resume a replica at random about every second, from a thread."""
    done = threading.Event()
    counts: Counter[str] = Counter()
    rng = random.Random(1)

    def run() -> None:
        while not done.wait(rng.uniform(0.5, 1.5)):
            replica = rng.choice(servers.replicas)
            replica.pause()
            counts["frozen"] += 1
            done.wait(rng.uniform(0.1, 1.5))
            replica.resume()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield counts
    finally:
        done.set()
        thread.join()
        for replica in servers.replicas:
            replica.resume()
            replica.wait_until_answering()


def fill(servers: RedisClusterServers) -> None:
    with redis.RedisCluster(host=servers.host, port=servers.port) as client:
        for key in KEYS:
            client.set(key, f"{key}=0")
        client.disconnect_connection_pools()


def keys(nodes: list[RedisNode]) -> int:
    total = 0
    for node in nodes:
        with node.client() as client:
            total += int(client.dbsize())
    return total


@pytest.fixture
def soaked(shards: RedisClusterServers) -> RedisClusterServers:
    """Two shards, filled so that every read finds something, also on a replica that is behind."""
    fill(shards)
    while keys(shards.replicas) < keys(shards.primaries):
        pass
    return shards


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    """From the start: of what was allocated before, freeing it would not be noticed."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


OPTIONS: dict[str, Any] = {
    "load_balancing_strategy": "latency_based",
    "decode_responses": True,
    "socket_timeout": SOCKET_TIMEOUT,
}


def keep_busy(seconds: float) -> None:
    """Keep the event loop from running."""
    sleep(seconds)


def report(name: str, counts: Counter[str], growth: int) -> str:
    figures = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
    return f"\n{name}: {figures}, growth {growth / 1000:.0f} kB"


def judge(client: Any, counts: Counter[str], growth: int) -> None:
    assert {e: s.in_flight for e, s in client.endpoint_stats().items() if s.in_flight} == {}
    assert counts["wrong"] == 0
    assert counts["error"] == 0
    assert counts["frozen"] > 0
    assert counts["read"] > 10 * WORKERS
    assert growth < SLACK


def test_threads(soaked: RedisClusterServers, capsys: pytest.CaptureFixture[str]) -> None:
    client: Any = library.OURS["sync"](host=soaked.host, port=soaked.port, **OPTIONS)
    problems: list[str] = []

    def use(worker: int, end: float) -> Counter[str]:
        rng = random.Random(worker)
        counts: Counter[str] = Counter()
        while monotonic() < end:
            key = rng.choice(KEYS)
            dice = rng.random()
            try:
                if dice < 0.1:
                    client.set(key, f"{key}={rng.randrange(1000)}")
                    counts["write"] += 1
                elif dice < 0.2:
                    several = rng.sample(KEYS, 8)
                    with client.pipeline() as pipe:
                        for each in several:
                            pipe.get(each)
                        for each, value in zip(several, pipe.execute(), strict=True):
                            check(each, value)
                    counts["pipeline"] += 1
                else:
                    check(key, client.get(key))
                    counts["read"] += 1
            except AssertionError as wrong:
                counts["wrong"] += 1
                problems.append(str(wrong))
            except Exception as error:
                counts["error"] += 1
                problems.append(repr(error))
        return counts

    def round_(seconds: float) -> Counter[str]:
        end = monotonic() + seconds
        with ThreadPoolExecutor(WORKERS) as threads:
            return sum(threads.map(use, range(WORKERS), [end] * WORKERS), Counter())

    try:
        with faults(soaked):
            round_(min(5.0, SECONDS))  # connections are made, caches filled
        before = allocated()
        with faults(soaked) as frozen:
            counts = round_(SECONDS)
        growth = allocated() - before
        counts += frozen
        with capsys.disabled():
            sys.stdout.write(report("64 threads", counts, growth))
        assert problems == []
        judge(client, counts, growth)
    finally:
        client.close()
        client.disconnect_connection_pools()


async def test_tasks(soaked: RedisClusterServers, capsys: pytest.CaptureFixture[str]) -> None:
    problems: list[str] = []

    async def use(client: Any, worker: int, end: float) -> Counter[str]:
        rng = random.Random(worker)
        counts: Counter[str] = Counter()
        while monotonic() < end:
            key = rng.choice(KEYS)
            dice = rng.random()
            patience = rng.uniform(0.001, 0.05) if rng.random() < 0.2 else None
            try:
                async with asyncio.timeout(patience):
                    if dice < 0.1:
                        await client.set(key, f"{key}={rng.randrange(1000)}")
                        counts["write"] += 1
                    elif dice < 0.2:
                        several = rng.sample(KEYS, 8)
                        async with client.pipeline() as pipe:
                            for each in several:
                                pipe.get(each)
                            for each, value in zip(several, await pipe.execute(), strict=True):
                                check(each, value)
                        counts["pipeline"] += 1
                    else:
                        check(key, await client.get(key))
                        counts["read"] += 1
            except TimeoutError:
                counts["cancelled"] += 1
            except AssertionError as wrong:
                counts["wrong"] += 1
                problems.append(str(wrong))
            except Exception as error:
                if RACE in str(error):
                    counts["race of redis-py"] += 1
                    continue
                counts["error"] += 1
                problems.append(repr(error))
        return counts

    async def hog(end: float) -> Counter[str]:
        """Keep the loop busy now and then, so that replies and time-outs are seen at once."""
        rng = random.Random(1)
        counts: Counter[str] = Counter()
        while monotonic() < end:
            await asyncio.sleep(rng.uniform(0.5, 1.5))
            keep_busy(rng.uniform(0.5, 1.5) * SOCKET_TIMEOUT)
            counts["loop kept busy"] += 1
        return counts

    async def round_(client: Any, seconds: float) -> Counter[str]:
        end = monotonic() + seconds
        workers = (use(client, worker, end) for worker in range(WORKERS))
        return sum(await asyncio.gather(hog(end), *workers), Counter())

    async with library.OURS["asyncio"](host=soaked.host, port=soaked.port, **OPTIONS) as client:
        with faults(soaked):
            await round_(client, min(5.0, SECONDS))
        before = allocated()
        with faults(soaked) as frozen:
            counts = await round_(client, SECONDS)
        growth = allocated() - before
        counts += frozen
        with capsys.disabled():
            sys.stdout.write(report("64 tasks", counts, growth))
        assert problems == []
        judge(client, counts, growth)
        assert counts["cancelled"] > 0
        assert await client.get(KEYS[0]) is not None


def allocated() -> int:
    """Return how many bytes Python holds."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
