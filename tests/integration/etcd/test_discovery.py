"""Members that join, leave and are promoted while a channel is in use, and false addresses."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import aetcd.rpc as rpc
import pytest

from bench.servers.etcd import EtcdServers
from bench.servers.process import wait_until
from lb_strategies import EndpointPolicy
from lb_strategies_etcd import AsyncRoutingChannel, RoutingChannel

from .conftest import Starter

pytestmark = pytest.mark.integration

ANYBODY = EndpointPolicy(allow_unlisted=True)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have members listed twice a second, where half a minute is usual."""
    monkeypatch.setattr("lb_strategies_etcd._discovery._INTERVAL", 0.5)
    monkeypatch.setattr("lb_strategies_etcd._discovery._RETRY", 0.2)


class Members:
    """What a channel takes for the members, be it for threads or for tasks."""

    def __init__(self, channel: RoutingChannel | AsyncRoutingChannel) -> None:
        self.channel = channel

    def __call__(self) -> set[object]:
        return set(self.channel.endpoint_stats())

    def voters(self) -> set[object]:
        return set(self.channel._router.tracker.voters)


@contextmanager
def opened(etcd: EtcdServers, policy: EndpointPolicy | None, count: int) -> Iterator[Members]:
    with (
        RoutingChannel(
            etcd.endpoints[:count], endpoint_policy=policy, user="root", password="secret"
        )
        if etcd.login
        else RoutingChannel(etcd.endpoints[:count], endpoint_policy=policy) as channel
    ):
        channel.wait_for_leader(0.0)  # the polls begin
        yield Members(channel)


def until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_one_endpoint_leads_to_all(etcd: EtcdServers) -> None:
    with opened(etcd, ANYBODY, 1) as members:
        until(lambda: members() == set(etcd.endpoints), "all were found")
        kv = rpc.KVStub(members.channel)
        served = {
            kv.Range(rpc.RangeRequest(key=b"k")).header.member_id for _ in range(60)
        }  # fmt: skip
        assert served == {member.member_id for member in etcd.members}


def test_without_a_policy_the_endpoints_are_all(etcd: EtcdServers) -> None:
    with opened(etcd, None, 1) as members:
        time.sleep(1.5)
        assert members() == {etcd.endpoints[0]}


def test_only_configured_and_mapped_addresses_are_taken(etcd: EtcdServers) -> None:
    first, second, third = etcd.endpoints
    with opened(etcd, EndpointPolicy([second]), 1) as members:
        until(lambda: members() == {first, second}, "the configured one was found")
        time.sleep(1.0)
        assert members() == {first, second}
    mapped = f"localhost:{third.rpartition(':')[2]}"
    with opened(etcd, EndpointPolicy(endpoint_map={third: mapped}), 1) as members:
        until(lambda: members() == {first, mapped}, "the mapped one was found")


@pytest.mark.integration(limit=120)
def test_members_come_learn_vote_and_go(fresh_etcd: EtcdServers) -> None:
    """A learner is skipped by what it refuses, joins the voters when promoted, and is dropped."""
    configured = set(fresh_etcd.endpoints)
    with opened(fresh_etcd, ANYBODY, 3) as members:
        kv = rpc.KVStub(members.channel)
        learner = fresh_etcd.add_learner()
        until(lambda: members() == configured | {learner.endpoint}, "the learner was found")
        until(lambda: members.voters() == configured, "and found to have no vote")
        for _ in range(100):  # of which a learner would refuse a quarter
            kv.Range(rpc.RangeRequest(key=b"k"), 10.0)
        # One that has just started may not know itself what it is.
        time.sleep(1.0)
        assert members.voters() == configured
        for _ in range(100):
            served = kv.Range(rpc.RangeRequest(key=b"k"), 10.0).header.member_id
            assert served != learner.member_id
        fresh_etcd.promote(learner)
        until(lambda: learner.endpoint in members.voters(), "it votes")
        until(
            lambda: kv.Range(rpc.RangeRequest(key=b"k")).header.member_id == learner.member_id,
            "it reads",
        )
        fresh_etcd.remove(learner)
        until(lambda: members() == configured, "it is dropped")


def test_configured_members_stay_when_they_leave(fresh_etcd: EtcdServers) -> None:
    endpoints = set(fresh_etcd.endpoints)
    with opened(fresh_etcd, ANYBODY, 3) as members:
        fresh_etcd.remove(fresh_etcd.followers[0])
        time.sleep(1.5)
        assert members() == endpoints
        kv = rpc.KVStub(members.channel)
        for number in range(30):
            kv.Put(rpc.PutRequest(key=b"k", value=b"%d" % number), 5.0)
            assert kv.Range(rpc.RangeRequest(key=b"k"), 5.0).kvs[0].value == b"%d" % number


class Listener:
    """Accepts connections and keeps what it hears."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            accepted.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


def test_a_false_address_hears_nothing(start_etcd: Starter, listener: Listener) -> None:
    """All members advertise it, and would have it get the password."""
    etcd = start_etcd(
        password="secret", options={"advertise-client-urls": f"http://{listener.address}"}
    )
    with opened(etcd, EndpointPolicy(), 2) as members:
        kv = rpc.KVStub(members.channel)
        until(lambda: bool(members.channel._discovery._refused), "it was refused")  # type: ignore[union-attr]
        for _ in range(30):
            kv.Range(rpc.RangeRequest(key=b"k"), 5.0)
        assert members() == set(etcd.endpoints[:2])
    assert listener.connections == 0

    async def likewise() -> None:
        async with AsyncRoutingChannel(
            etcd.endpoints[:2], endpoint_policy=EndpointPolicy(), user="root", password="secret"
        ) as channel:
            for _ in range(1000):
                await rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"k"), timeout=5.0)
                if channel._discovery is not None and channel._discovery._refused:
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("it was not refused")

    asyncio.run(likewise())
    assert listener.connections == 0
    # It can be heard by who is told to trust everybody, which shows that the test would notice.
    with opened(etcd, ANYBODY, 1) as members:
        until(lambda: listener.connections > 0, "it was dialled")


def test_an_address_that_means_every_interface_is_ignored(start_etcd: Starter) -> None:
    etcd = start_etcd(options={"advertise-client-urls": "http://0.0.0.0:2379"})
    with opened(etcd, ANYBODY, 2) as members:
        time.sleep(1.5)
        assert members() == set(etcd.endpoints[:2])


@asynccontextmanager
async def aio_opened(etcd: EtcdServers, count: int) -> AsyncIterator[AsyncRoutingChannel]:
    async with AsyncRoutingChannel(etcd.endpoints[:count], endpoint_policy=ANYBODY) as channel:
        await channel.wait_for_leader(0.0)
        yield channel


async def test_tasks_find_members_and_lose_them(fresh_etcd: EtcdServers) -> None:
    async def until_members(expected: set[str]) -> None:
        async with asyncio.timeout(20):
            while set(channel.endpoint_stats()) != expected:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async with aio_opened(fresh_etcd, 1) as channel:
        everybody = set(fresh_etcd.endpoints)
        await until_members(everybody)
        kv = rpc.KVStub(channel)
        served = {(await kv.Range(rpc.RangeRequest(key=b"k"))).header.member_id for _ in range(60)}
        assert len(served) == 3
        gone = next(m for m in fresh_etcd.followers if m.endpoint != fresh_etcd.endpoints[0])
        await asyncio.to_thread(fresh_etcd.remove, gone)
        await until_members(everybody - {gone.endpoint})
        for _ in range(30):
            await kv.Range(rpc.RangeRequest(key=b"k"), timeout=5.0)


def test_closing_while_members_are_listed_ends_all_threads(etcd: EtcdServers) -> None:
    before = set(threading.enumerate())
    for _ in range(10):
        with opened(etcd, ANYBODY, 1):
            pass

    def left() -> list[str]:
        new = (thread.name for thread in threading.enumerate() if thread not in before)
        return [name for name in new if name.startswith("lb-poll")]

    # Closing waits for a poll under way only as long as it should take.
    wait_until(lambda: not left(), "all polls have ended")
