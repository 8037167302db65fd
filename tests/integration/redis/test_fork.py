"""Pre-forked workers, as of gunicorn --preload: the client is made and used before the fork."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import Candidate

from . import library
from .children import Forked, How
from .nodes import KEYS, frozen

pytestmark = pytest.mark.integration

OPTIONS: dict[str, Any] = {
    "load_balancing_strategy": "latency_based",
    "decode_responses": True,
    "socket_timeout": 5,
}
STALL = 0.3
"""Seconds that the parent's requests have been waiting for when it forks."""
FRESH: dict[str, Any] = {
    "in flight at first": 0,
    "right": 200,
    "pipeline is right": True,
    "in flight at last": 0,
    "failures": 0,
}
"""What a worker reports that has inherited nothing of the parent's requests."""


def total(client: Any, counter: str) -> int:
    return sum(getattr(stats, counter) for stats in client.endpoint_stats().values())


@contextmanager
def traffic(client: Any, workers: int) -> Iterator[list[object]]:
    """Read and write in threads inside the block; the list gets what went wrong."""
    done = threading.Event()
    problems: list[object] = []

    def use(worker: int) -> None:
        rng = random.Random(worker)
        turn = 0
        while not done.is_set():
            try:
                turn += 1
                key = rng.choice(KEYS)
                if client.get(key) != key or client.incr(f"{os.getpid()}:{worker}") != turn:
                    problems.append(key)
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=use, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield problems
    finally:
        done.set()
        for thread in threads:
            thread.join(timeout=30)
        assert not any(thread.is_alive() for thread in threads)


def worker(client: Any) -> dict[str, Any]:
    """What a worker process does: its own traffic, then an orderly end."""
    report: dict[str, Any] = {"in flight at first": total(client, "in_flight")}

    def read(turn: int) -> bool:
        key = KEYS[turn % len(KEYS)]
        return bool(client.get(key) == key)

    with ThreadPoolExecutor(4) as threads:
        report["right"] = sum(threads.map(read, range(200)))
    with client.pipeline() as pipe:
        for key in KEYS:
            pipe.get(key)
        report["pipeline is right"] = pipe.execute() == list(KEYS)
    report["in flight at last"] = total(client, "in_flight")
    report["failures"] = total(client, "failures")
    client.close()
    client.disconnect_connection_pools()
    return report


def test_a_forked_child_starts_with_nothing_in_flight(shard: RedisClusterServers) -> None:
    """Research P5: the child carried the parent's in-flight counts for ever."""
    with library.OURS["sync"](host=shard.host, port=shard.port, **OPTIONS) as client:
        for key in KEYS:
            client.get(key)
        with frozen(*shard.nodes):
            threads = [threading.Thread(target=client.get, args=("key:0",)) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(STALL)
            assert total(client, "in_flight") == 2
            child = Forked("os.fork", lambda: worker(client))
        assert child.result() == FRESH
        for thread in threads:
            thread.join(timeout=10)
        assert total(client, "in_flight") == 0
        assert [client.get(key) for key in KEYS] == list(KEYS)
        client.disconnect_connection_pools()


def test_forked_children_do_not_choose_in_lock_step(shard: RedisClusterServers) -> None:
    """CPython re-seeds only its own generator: pre-forked workers would march in step."""
    with library.OURS["sync"](host=shard.host, port=shard.port, **OPTIONS) as client:
        client.get("key:0")
        endpoints = tuple(client.endpoint_stats())
        balancer = client.load_balancer
        assert balancer is not None

        def choices() -> list[str]:
            return [str(balancer.choose(endpoints, now=time.perf_counter())) for _ in range(64)]

        sequences = [tuple(Forked("os.fork", choices).result()) for _ in range(3)]
        client.disconnect_connection_pools()
    assert all(len(sequence) == 64 for sequence in sequences)
    assert len(set(sequences)) == 3 or len(set(sequences[0])) == 1


@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_parent_and_children_work_at_once(shard: RedisClusterServers, how: How) -> None:
    with library.OURS["sync"](host=shard.host, port=shard.port, **OPTIONS) as client:
        for key in KEYS:
            client.get(key)
        with traffic(client, workers=6) as problems:
            children = [Forked(how, lambda: worker(client)) for _ in range(3)]
            reports = [child.result() for child in children]
        assert reports == [FRESH] * 3
        # Nobody has read the other's replies, nor closed the other's connections.
        assert problems == []
        assert total(client, "in_flight") == total(client, "failures") == 0
        client.disconnect_connection_pools()


class Holding:
    """A policy that takes its time, in the parent: the balancer is locked meanwhile."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        self.is_choosing = threading.Event()
        self.may_go_on = threading.Event()

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        if os.getpid() == self.parent and threading.current_thread().name == "slow":
            self.is_choosing.set()
            self.may_go_on.wait(30)
        return rng.choice(candidates)


def test_a_lock_that_is_held_at_the_fork_does_not_lock_the_child_out(
    shard: RedisClusterServers,
) -> None:
    policy = Holding()
    options = OPTIONS | {"load_balancing_strategy": policy}
    with library.OURS["sync"](host=shard.host, port=shard.port, **options) as client:
        for key in KEYS:
            client.get(key)
        slow = threading.Thread(target=client.get, args=("key:0",), name="slow")
        slow.start()
        try:
            assert policy.is_choosing.wait(30)
            report = Forked("os.fork", lambda: worker(client)).result()
        finally:
            policy.may_go_on.set()
            slow.join(timeout=30)
        assert report["right"] == 200
        assert report["in flight at first"] == report["in flight at last"] == 0
        assert total(client, "in_flight") == 0
        client.disconnect_connection_pools()


@contextmanager
def held(locks: Sequence[Any]) -> Iterator[None]:
    """Have a thread hold `locks` inside the block."""
    done, are_held = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            are_held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert are_held.wait(30)
        yield
    finally:
        done.set()
        thread.join(timeout=30)


@pytest.mark.parametrize("owner", ["pools", "manager", "client"])
def test_a_lock_of_the_library_that_is_held_at_the_fork_does_not_lock_the_child_out(
    shard: RedisClusterServers, owner: str
) -> None:
    """A pool of redis-py 8 takes its lock to begin anew, and waited for the parent's thread."""
    with library.OURS["sync"](host=shard.host, port=shard.port, **OPTIONS) as client:
        for key in KEYS:
            client.get(key)
        manager = client.nodes_manager
        nodes = manager.nodes_cache.values()
        pools = [library.node_client(node).connection_pool for node in nodes]
        owners = {"pools": pools, "manager": [manager], "client": [client]}
        names = ("_lock", "_fork_lock", "_initialization_lock")
        locks = [getattr(one, name, None) for one in owners[owner] for name in names]

        def work() -> dict[str, Any]:
            client.nodes_manager.initialize()
            return worker(client)

        with held([lock for lock in locks if lock is not None]):
            child = Forked("os.fork", work)
        assert child.result() == FRESH
        assert [client.get(key) for key in KEYS] == list(KEYS)
        client.disconnect_connection_pools()


def test_forks_at_any_moment_of_the_parents_requests(shard: RedisClusterServers) -> None:
    """Whatever the parent's threads were doing to the balancer, the child can use it."""

    def read() -> list[Any]:
        return [client.get(key) for key in KEYS[:6]] + [total(client, "in_flight")]

    with library.OURS["sync"](host=shard.host, port=shard.port, **OPTIONS) as client:
        client.get("key:0")
        with traffic(client, workers=6) as problems:
            for _ in range(15):
                assert Forked("os.fork", read).result() == [*KEYS[:6], 0]
        assert problems == []
        client.disconnect_connection_pools()


def test_an_asyncio_client_made_before_the_fork(shard: RedisClusterServers) -> None:
    """It belongs to the loop that first uses it: each process has one of its own."""
    client: Any = library.OURS["asyncio"](host=shard.host, port=shard.port, **OPTIONS)

    async def use() -> list[Any]:
        async with client:
            values = await asyncio.gather(*(client.get(key) for key in KEYS))
            return [*values, total(client, "in_flight"), total(client, "failures")]

    children = [Forked("os.fork", lambda: asyncio.run(use())) for _ in range(2)]
    results = [asyncio.run(use()), *(child.result() for child in children)]
    assert results == 3 * [[*KEYS, 0, 0]]
