"""Streams whose member is killed, paused or no longer led, against real members."""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aetcd.rpc as rpc
import grpc
import pytest

from bench.servers.binaries import BinaryNotFoundError, find_etcd_server
from bench.servers.etcd import EtcdMember, EtcdServers
from bench.servers.process import wait_until
from lb_strategies import ConsensusOptions
from lb_strategies_etcd import RoutingChannel
from tests.integration.etcd.conftest import Connect, Starter
from tests.integration.etcd.drivers import Driver

pytestmark = pytest.mark.integration

Event = tuple[int, bytes]
EVERYTHING = {"key": b"w/", "range_end": b"w0"}
QUICK = ConsensusOptions(poll_interval=0.1, poll_timeout=0.3)


def watching(**create: Any) -> Any:
    return rpc.WatchRequest(create_request=rpc.WatchCreateRequest(**(EVERYTHING | create)))


def open_watch(driver: Driver, **create: Any) -> tuple[Any, Callable[[Any], None]]:
    """Return a stream whose watch has been created, and what sends more requests."""
    stream, send = driver.open(rpc.WatchStub(driver.channel).Watch, watching(**create))
    assert driver.read(stream).created
    return stream, send


def serving(etcd: EtcdServers, stream: Any) -> EtcdMember:
    """Return the member that a stream is open on."""
    [member] = [member for member in etcd.members if member.endpoint == stream.member]
    return member


def events_of(response: Any) -> list[Event]:
    return [(event.kv.mod_revision, event.kv.key) for event in response.events]


class Writer:
    """Another client, which writes one to three keys at a time until it is told to stop."""

    def __init__(self, etcd: EtcdServers) -> None:
        self._channel = RoutingChannel(etcd.endpoints, options=QUICK)
        self._put = rpc.KVStub(self._channel).Txn
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.revision = 0
        """Of the last write that was answered."""

    def _write(self) -> None:
        count = 0
        while not self._stopped.wait(0.01):
            count += 1
            self._write_once(count)

    def _write_once(self, count: int) -> bool:
        puts = [
            rpc.RequestOp(request_put=rpc.PutRequest(key=b"w/%d" % key, value=b"%d" % count))
            for key in range(1 + count % 3)
        ]
        try:
            answer = self._put(rpc.TxnRequest(success=puts), timeout=2)
        except grpc.RpcError:
            return False
        self.revision = answer.header.revision
        return True

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Write no more, but for a last time."""
        self._stopped.set()
        self._thread.join()
        wait_until(lambda: self._write_once(2), "the last write is done")

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._channel.close()


def log_of(member: EtcdMember, until: int) -> list[Event]:
    """Return what the store did up to a revision, from a member that is well."""
    with grpc.insecure_channel(member.endpoint) as channel:
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(watching(start_revision=1))
        log: list[Event] = []
        stream = rpc.WatchStub(channel).Watch(iter(requests.get, None), timeout=20)
        for response in stream:
            log += events_of(response)
            if log and log[-1][0] >= until:
                break
        requests.put(None)
        stream.cancel()
    return [event for event in log if event[0] <= until]


# -- watches that go on ---------------------------------------------------------------------


def kill(etcd: EtcdServers, member: EtcdMember) -> None:
    member.kill()


def pause(etcd: EtcdServers, member: EtcdMember) -> None:
    member.pause()


def change_leader(etcd: EtcdServers, member: EtcdMember) -> None:
    for _ in range(3):
        etcd.move_leader(etcd.followers[0])


@pytest.mark.parametrize("fault", [kill, pause, change_leader])
def test_a_watch_sees_each_revision_once_and_whole(
    fresh_etcd: EtcdServers, connect: Connect, fault: Callable[[EtcdServers, EtcdMember], None]
) -> None:
    """A watch whose server is gone goes on, with nothing lost and nothing twice.

    No events after the member is lost: microsoft/etcd3#31, #78, jetcd#523, #1046, #1352. Hanging
    for ever: etcd-io/etcd#8980, #5985, python-etcd3#88. Parts of a revision: python-etcd3#729.
    """
    driver = connect(fresh_etcd, resume_watches=True, options=QUICK)
    stream, _ = open_watch(driver)
    member = serving(fresh_etcd, stream)
    responses: list[list[Event]] = []

    def read_until(revision: int) -> None:
        while not responses or responses[-1][-1][0] < revision:
            responses.append(events_of(driver.read(stream)))

    with Writer(fresh_etcd) as writer:
        read_until(15)
        fault(fresh_etcd, member)
        after = writer.revision
        wait_until(lambda: writer.revision > after + 15, "writes go on")
        read_until(after + 10)
        writer.stop()
        read_until(writer.revision)
    well = next(other for other in fresh_etcd.members if other is not member)
    seen = [event for response in responses for event in response]
    assert seen == log_of(well, until=writer.revision)
    revisions = [
        revision for response in responses for revision in {event[0] for event in response}
    ]
    assert len(revisions) == len(set(revisions)), "a revision came in two parts"
    if fault is not change_leader:
        assert stream.member != member.endpoint
    stream.cancel()


@pytest.mark.parametrize("series", ["3.5", "3.4"])
def test_watches_keep_their_ids(start_etcd: Starter, connect: Connect, series: str) -> None:
    try:
        binary = find_etcd_server(series=series)
    except BinaryNotFoundError as error:
        pytest.skip(str(error))
    etcd = start_etcd(binary=binary)
    driver = connect(etcd, resume_watches=True, options=QUICK)
    stream, send = open_watch(driver)
    for create in (watching(watch_id=7, progress_notify=True), watching(key=b"w/1", range_end=b"")):
        send(create)
    assert [driver.read(stream).watch_id for _ in range(2)] == [7, 1]
    send(rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=1)))
    assert driver.read(stream).canceled
    serving(etcd, stream).kill()
    etcd.leader().put("w/1", "value")
    answers = [driver.read(stream) for _ in range(2)]
    assert sorted(answer.watch_id for answer in answers) == [0, 7]
    assert all(len(answer.events) == 1 for answer in answers)
    send(rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=0)))
    cancelled = driver.read(stream)
    assert (cancelled.watch_id, cancelled.canceled) == (0, True)
    send(watching(start_revision=1))
    created = driver.read(stream)
    assert created.created
    assert created.watch_id not in (0, 7)
    stream.cancel()


def test_compaction_meanwhile_is_told_in_the_servers_words(
    fresh_etcd: EtcdServers, connect: Connect
) -> None:
    driver = connect(fresh_etcd, resume_watches=True, options=QUICK)
    stream, _ = open_watch(driver)
    serving(fresh_etcd, stream).pause()
    leader = fresh_etcd.leader()
    revision = [leader.put("w/1", str(count)) for count in range(5)][-1]
    leader.call("kv/compaction", {"revision": str(revision)})
    answer = driver.read(stream)
    assert (answer.canceled, answer.watch_id, answer.compact_revision) == (True, 0, revision)
    stream.cancel()


# -- streams that end -----------------------------------------------------------------------


@pytest.mark.parametrize("resume_watches", [False, True])
def test_a_watch_without_a_quorum_ends(
    fresh_etcd: EtcdServers, connect: Connect, resume_watches: bool
) -> None:
    """A member of the minority would be silent for ever: kubernetes#89488, etcd-io/etcd#17611."""
    options = ConsensusOptions(poll_interval=0.1, poll_timeout=0.3, retry_for=1.0)
    driver = connect(fresh_etcd, resume_watches=resume_watches, options=options)
    stream, _ = open_watch(driver)
    member = serving(fresh_etcd, stream)
    for other in fresh_etcd.members:
        if other is not member:
            other.pause()
    with pytest.raises(grpc.RpcError) as caught:
        driver.read(stream)
    # In asyncio, gRPC calls it INTERNAL if the stream ends just when a request is being sent.
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)


@pytest.mark.parametrize("resume_watches", [False, True])
def test_a_watch_on_the_only_member_ends_when_that_is_paused(
    fresh_etcd: EtcdServers, connect: Connect, resume_watches: bool
) -> None:
    """A watch must not hang: etcd-io/etcd#8980, #5985, python-etcd3#88."""
    options = ConsensusOptions(poll_interval=0.1, poll_timeout=0.3, retry_for=1.0)
    only = fresh_etcd.followers[0]
    driver = connect([only.endpoint], resume_watches=resume_watches, options=options)
    stream, _ = open_watch(driver)
    only.pause()
    with pytest.raises(grpc.RpcError) as caught:
        driver.read(stream)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert only.endpoint in str(caught.value)


# -- leases ---------------------------------------------------------------------------------


def test_a_lease_outlives_the_leader(fresh_etcd: EtcdServers, connect: Connect) -> None:
    """The keep-alives go on at the next leader: etcd-io/etcd#15922, #8382."""
    driver = connect(fresh_etcd, options=QUICK)
    leases = rpc.LeaseStub(driver.channel)
    lease = driver.call(leases.LeaseGrant, rpc.LeaseGrantRequest(TTL=5)).ID
    put = rpc.PutRequest(key=b"leased", value=b"value", lease=lease)
    driver.call(rpc.KVStub(driver.channel).Put, put)
    keep = rpc.LeaseKeepAliveRequest(ID=lease)
    stream, send = driver.open(leases.LeaseKeepAlive, keep)
    assert driver.read(stream).TTL == 5
    killed = fresh_etcd.leader()
    killed.kill()
    end = time.monotonic() + 7
    while time.monotonic() < end:
        send(keep)
        answer = driver.read(stream)
        assert (lease, 5) == (answer.ID, answer.TTL)
        driver.sleep(0.4)
    assert stream.member != killed.endpoint
    read = rpc.RangeRequest(key=b"leased")
    assert driver.call(rpc.KVStub(driver.channel).Range, read).kvs[0].value == b"value"
    stream.cancel()


# -- authentication -------------------------------------------------------------------------


def test_new_streams_get_new_tokens(start_etcd: Starter, connect: Connect) -> None:
    """A watch with an expired token is cancelled: etcd-io/etcd#13413, #12615, patroni#2332."""
    etcd = start_etcd(password="secret", auth_token_ttl=2)
    driver = connect(etcd, user="root", password="secret", resume_watches=True, options=QUICK)
    stream, _ = open_watch(driver)
    driver.sleep(4)
    again, _ = open_watch(driver)
    serving(etcd, stream).kill()
    revision = etcd.leader().put("w/1", "value")
    for one in (stream, again):
        assert events_of(driver.read(one)) == [(revision, b"w/1")]
        one.cancel()


# -- threads, and what a plain stream has ---------------------------------------------------


@contextmanager
def channel_to(etcd: EtcdServers, **options: Any) -> Iterator[RoutingChannel]:
    with RoutingChannel(etcd.endpoints, **options) as channel:
        yield channel


def test_streams_that_are_dropped_leave_no_threads(etcd: EtcdServers) -> None:
    with channel_to(etcd, resume_watches=True) as channel:
        for _ in range(5):
            stream = rpc.WatchStub(channel).Watch(iter([watching()]))
            assert next(stream).created
        stream.cancel()
        before = set(threading.enumerate())
        streams = [rpc.WatchStub(channel).Watch(iter([watching()])) for _ in range(20)]
        assert all(next(stream).created for stream in streams)
        streams.clear()
        gc.collect()
        wait_until(lambda: set(threading.enumerate()) <= before, "the threads have ended")


def test_the_end_is_told_once_and_not_at_each_member(fresh_etcd: EtcdServers) -> None:
    with channel_to(fresh_etcd, resume_watches=True, options=QUICK) as channel:
        stream = rpc.WatchStub(channel).Watch(iter([watching()]))
        told: list[Any] = []
        stream.add_done_callback(told.append)
        assert stream.add_callback(lambda: told.append(None))
        assert next(stream).created
        serving(fresh_etcd, stream).kill()
        fresh_etcd.leader().put("w/1", "value")
        assert len(next(stream).events) == 1
        assert stream.is_active()
        assert not told
        stream.cancel()
        assert told == [stream, None]
        assert not stream.add_callback(lambda: None)
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is stream.code() is grpc.StatusCode.CANCELLED
        assert not stream.is_active()


def test_a_stream_that_is_cancelled_elsewhere_ends_its_reader(etcd: EtcdServers) -> None:
    with channel_to(etcd, resume_watches=True) as channel:
        stream = rpc.WatchStub(channel).Watch(iter([watching()]))
        assert next(stream).created
        threading.Timer(0.3, stream.cancel).start()
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.CANCELLED


def test_a_stream_of_a_closed_channel_ends(etcd: EtcdServers) -> None:
    with channel_to(etcd, resume_watches=True) as channel:
        stream = rpc.WatchStub(channel).Watch(iter([watching()]))
        assert next(stream).created
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    assert caught.value.code() is grpc.StatusCode.CANCELLED


def test_a_time_limit_ends_a_watch_that_would_go_on(etcd: EtcdServers) -> None:
    with channel_to(etcd, resume_watches=True) as channel:
        stream = rpc.WatchStub(channel).Watch(iter([watching()]), timeout=1.0)
        assert next(stream).created
        assert 0 < stream.time_remaining() <= 1
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        # The member knows the limit too, and may be the first to say so, in its own words.
        assert caught.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN)
        assert "deadline exceeded" in caught.value.details().lower()
        assert stream.time_remaining() == 0
