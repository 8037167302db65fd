"""Forks, event loops and threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .nodes import KEYS, frozen

pytestmark = pytest.mark.integration

STALL = 0.3


def total(client: Any, counter: str) -> int:
    return sum(getattr(stats, counter) for stats in client.endpoint_stats().values())


def test_a_forked_child_starts_with_nothing_in_flight(shard: RedisClusterServers) -> None:
    """Research P5: the child carried the parent's in-flight counts for ever."""
    with library.OURS["sync"](
        host=shard.host,
        port=shard.port,
        load_balancing_strategy="latency_based",
        decode_responses=True,
        socket_timeout=5,
    ) as client:
        for key in KEYS:
            client.get(key)
        with frozen(*shard.nodes):
            threads = [threading.Thread(target=client.get, args=("key:0",)) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(STALL)
            assert total(client, "in_flight") == 2
            with warnings.catch_warnings():
                # Newer Pythons warn of forks beside threads, which is what this is about.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if not child:
                os._exit(_in_child(client))
        assert _exit_code(child) == 0
        for thread in threads:
            thread.join(timeout=10)
        assert total(client, "in_flight") == 0
        assert [client.get(key) for key in KEYS] == list(KEYS)
        client.disconnect_connection_pools()


def _in_child(client: Any) -> int:
    """Return 0 if everything works, else the number of the step that failed."""
    try:
        if total(client, "in_flight"):
            return 1
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if [client.get(key) for key in KEYS] != list(KEYS):
                return 2
            with client.pipeline() as pipe:
                pipe.get("key:0")
                if pipe.execute() != ["key:0"]:
                    return 3
            if total(client, "in_flight"):
                return 4
            if not total(client, "failures"):
                return 0
        return 5
    except BaseException:
        return 6


def _exit_code(child: int) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def test_forked_children_do_not_choose_in_lock_step(shard: RedisClusterServers) -> None:
    """CPython re-seeds only its own generator: pre-forked workers would march in step."""
    with library.OURS["sync"](
        host=shard.host, port=shard.port, load_balancing_strategy="latency_based", socket_timeout=5
    ) as client:
        client.get("key:0")
        endpoints = tuple(client.endpoint_stats())
        sequences = []
        for _ in range(3):
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                balancer = client.load_balancer
                assert balancer is not None
                chosen = (balancer.choose(endpoints, now=time.perf_counter()) for _ in range(64))
                os.write(writing, ",".join(str(endpoint) for endpoint in chosen).encode())
                os._exit(0)
            os.close(writing)
            with os.fdopen(reading) as pipe:
                sequences.append(pipe.read())
            assert _exit_code(child) == 0
        client.disconnect_connection_pools()
    assert all(sequences)
    assert len(set(sequences)) == 3 or len(set(sequences[0].split(","))) == 1


def test_event_loops_one_after_another(shard: RedisClusterServers) -> None:
    async def use() -> None:
        async with library.OURS["asyncio"](
            host=shard.host,
            port=shard.port,
            load_balancing_strategy="latency_based",
            decode_responses=True,
            socket_timeout=5,
        ) as client:
            assert await asyncio.gather(*(client.get(key) for key in KEYS)) == list(KEYS)
            async with client.pipeline() as pipe:
                for key in KEYS:
                    pipe.get(key)
                assert await pipe.execute() == list(KEYS)
            assert total(client, "in_flight") == total(client, "failures") == 0

    for _ in range(3):
        asyncio.run(use())


def test_event_loops_in_several_threads_at_once(shard: RedisClusterServers) -> None:
    async def use() -> None:
        async with library.OURS["asyncio"](
            host=shard.host,
            port=shard.port,
            load_balancing_strategy="latency_based",
            decode_responses=True,
            socket_timeout=5,
        ) as client:
            for _ in range(5):
                assert await asyncio.gather(*(client.get(key) for key in KEYS)) == list(KEYS)
            assert total(client, "in_flight") == total(client, "failures") == 0

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(lambda: asyncio.run(use())) for _ in range(4)]:
            done.result(timeout=30)


def test_one_client_serves_many_threads(shards: RedisClusterServers) -> None:
    with library.OURS["sync"](
        host=shards.host,
        port=shards.port,
        load_balancing_strategy="latency_based",
        decode_responses=True,
        socket_timeout=5,
    ) as client:

        def use(worker: int) -> None:
            for turn in range(30):
                key = KEYS[(worker + turn) % len(KEYS)]
                assert client.get(key) == key
                assert client.incr(f"counter:{worker}") == turn + 1
                with client.pipeline() as pipe:
                    for other in KEYS[:8]:
                        pipe.get(other)
                    assert pipe.execute() == list(KEYS[:8])

        with ThreadPoolExecutor(16) as threads:
            for done in [threads.submit(use, worker) for worker in range(16)]:
                done.result(timeout=60)
        assert total(client, "in_flight") == total(client, "failures") == 0
        client.disconnect_connection_pools()
