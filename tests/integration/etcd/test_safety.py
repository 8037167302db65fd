"""Nothing that may have been executed is sent twice, and nothing that was answered is lost.

Writers put and swap while the leader is killed, paused, cut off or moved; afterwards the store's
own history says what was done how often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import aetcd.rpc as rpc
import grpc
import pytest

from bench.servers.etcd import EtcdServers
from lb_strategies_etcd import RoutingChannel
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


def write(stub: rpc.KVStub, writer: Writer, done: threading.Event) -> None:
    while not done.is_set() and writer.count < 50_000:
        try:
            if writer.compares:
                answer = stub.Txn(writer.next_swap(), timeout=TIMEOUT)
                writer.answered(applied=answer.succeeded)
                if not answer.succeeded:
                    look(stub, writer, done)
            else:
                stub.Put(writer.next_put(), timeout=TIMEOUT)
                writer.answered(applied=True)
        except grpc.RpcError as error:
            writer.failed(error)
            look(stub, writer, done)


def look(stub: rpc.KVStub, writer: Writer, done: threading.Event) -> None:
    """Read the key until it can be read; the write before may still come, so wait for it."""
    while not done.is_set():
        # A write that is on its way when its caller gives up is applied within an election or so.
        time.sleep(TIMEOUT if writer.compares else 0.0)
        try:
            found = stub.Range(rpc.RangeRequest(key=writer.key), timeout=TIMEOUT)
        except grpc.RpcError:
            continue
        writer.found(found.kvs[0].value if found.kvs else None)
        return


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
    done = threading.Event()
    with RoutingChannel(etcd.endpoints) as channel:
        channel.wait_for_leader()
        stub = rpc.KVStub(channel)
        threads = [
            threading.Thread(target=write, args=(stub, writer, done), daemon=True)
            for writer in writers
        ]
        for thread in threads:
            thread.start()
        try:
            time.sleep(0.5)
            FAULTS[fault](etcd)
            time.sleep(0.5)
        finally:
            done.set()
            for thread in threads:
                thread.join(10.0)
    etcd.repair()
    time.sleep(TIMEOUT)
    values = history.values()
    history.close()
    check(writers, values)
    assert all(len(writer.acknowledged) > 20 for writer in writers)
    if fault == "moved":
        assert not any(writer.uncertain for writer in writers)
