"""Nothing that may have been executed is sent twice, and nothing that was answered is lost.

Writers in threads and in tasks put and swap while the leader is killed, paused, cut off or moved;
afterwards the store's own history says what was done how often.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aetcd.rpc as rpc
import grpc
import pytest

from bench.servers.etcd import EtcdServers
from lb_strategies_etcd import AsyncRoutingChannel, RoutingChannel
from tests.integration.etcd.history import PREFIX, History, Writer, check

TIMEOUT = 1.0
WRITERS = 4


def kill(etcd: EtcdServers) -> None:
    leader = etcd.leader()
    leader.kill()
    time.sleep(1.5)
    leader.restart()


def pause(etcd: EtcdServers) -> None:
    leader = etcd.leader()
    leader.pause()
    time.sleep(2.5)
    leader.resume()


def cut(etcd: EtcdServers) -> None:
    leader = etcd.leader()
    leader.cut()
    time.sleep(2.5)
    leader.heal()


def move(etcd: EtcdServers) -> None:
    for _ in range(5):
        etcd.move_leader(etcd.followers[0])
        time.sleep(0.3)


def pause_and_kill(etcd: EtcdServers) -> None:
    """Let a paused leader have requests in its socket, and never answer them."""
    leader = etcd.leader()
    leader.pause()
    time.sleep(0.2)
    leader.kill()
    time.sleep(1.5)
    leader.restart()


FAULTS: dict[str, Callable[[EtcdServers], None]] = {
    "killed": kill,
    "paused": pause,
    "cut off": cut,
    "moved": move,
    "paused, then killed": pause_and_kill,
}


class Sync:
    """Calls through the channel for threads."""

    def __init__(self, channel: RoutingChannel) -> None:
        self._stub = rpc.KVStub(channel)

    async def call(self, method: str, request: object) -> Any:
        return getattr(self._stub, method)(request, timeout=TIMEOUT)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # each has a thread of its own


class Asyncio:
    """Calls through the channel for tasks."""

    def __init__(self, channel: AsyncRoutingChannel) -> None:
        self._stub = rpc.KVStub(channel)

    async def call(self, method: str, request: object) -> Any:
        return await getattr(self._stub, method)(request, timeout=TIMEOUT)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def write(client: Sync | Asyncio, writer: Writer, done: threading.Event) -> None:
    while not done.is_set() and writer.count < 50_000:
        try:
            if writer.compares:
                answer = await client.call("Txn", writer.next_swap())
                writer.answered(applied=answer.succeeded)
                if not answer.succeeded:
                    await look(client, writer, done)
            else:
                await client.call("Put", writer.next_put())
                writer.answered(applied=True)
        except grpc.RpcError as error:
            writer.failed(error)
            await look(client, writer, done)


async def look(client: Sync | Asyncio, writer: Writer, done: threading.Event) -> None:
    """Read the key until it can be read; the write before may still come, so wait for it."""
    while not done.is_set():
        # A write that is on its way when its caller gives up is applied within an election or so.
        await client.sleep(TIMEOUT if writer.compares else 0.0)
        try:
            found = await client.call("Range", rpc.RangeRequest(key=writer.key))
        except grpc.RpcError:
            continue
        writer.found(found.kvs[0].value if found.kvs else None)
        return


def write_in_threads(
    etcd: EtcdServers, writers: list[Writer], ready: threading.Barrier, done: threading.Event
) -> None:
    with RoutingChannel(etcd.endpoints) as channel:
        channel.wait_for_leader()
        ready.wait(20.0)
        threads = [
            threading.Thread(target=asyncio.run, args=(write(Sync(channel), writer, done),))
            for writer in writers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def write_in_tasks(
    etcd: EtcdServers, writers: list[Writer], ready: threading.Barrier, done: threading.Event
) -> None:
    async with AsyncRoutingChannel(etcd.endpoints) as channel:
        await channel.wait_for_leader()
        await asyncio.to_thread(ready.wait, 20.0)
        await asyncio.gather(*(write(Asyncio(channel), writer, done) for writer in writers))


@pytest.fixture
def linked_etcd(start_etcd: Callable[..., EtcdServers]) -> EtcdServers:
    """Three members whose links can be cut."""
    return start_etcd(members=3, client_rtt=0.0, peer_rtt=0.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_write_is_done_as_often_as_it_was_asked_for(
    linked_etcd: EtcdServers, fault: str
) -> None:
    etcd = linked_etcd
    history = History(etcd.followers[0].endpoint)
    writers = [Writer(PREFIX + b"%d" % i, compares=bool(i % 2)) for i in range(WRITERS)]
    half = WRITERS // 2
    ready, done = threading.Barrier(3), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        users = [
            pool.submit(write_in_threads, etcd, writers[:half], ready, done),
            pool.submit(asyncio.run, write_in_tasks(etcd, writers[half:], ready, done)),
        ]
        try:
            ready.wait(20.0)
            time.sleep(0.5)
            FAULTS[fault](etcd)
            time.sleep(0.5)
        finally:
            done.set()
        for user in users:
            user.result(15.0)
    etcd.repair()
    time.sleep(TIMEOUT)
    values = history.values()
    history.close()
    check(writers, values)
    assert all(len(writer.acknowledged) > 20 for writer in writers)
    if fault == "moved":
        assert not any(writer.uncertain for writer in writers)
