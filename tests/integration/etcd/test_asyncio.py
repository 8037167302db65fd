"""What is peculiar to the asyncio channel: its calls, its event loop, and aetcd over it."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import aetcd
import aetcd.rpc as rpc
import grpc.aio
import pytest

from bench.servers.etcd import EtcdServers
from lb_strategies_etcd import AsyncRoutingChannel
from tests.integration.etcd.conftest import Starter

pytestmark = pytest.mark.integration

GET = rpc.RangeRequest(key=b"key")
PUT = rpc.PutRequest(key=b"key", value=b"value")


@pytest.fixture
async def channel(etcd: EtcdServers) -> AsyncIterator[AsyncRoutingChannel]:
    async with AsyncRoutingChannel(etcd.endpoints) as channel:
        await channel.wait_for_leader()
        yield channel


@pytest.fixture
async def paused(fresh_etcd: EtcdServers) -> AsyncIterator[AsyncRoutingChannel]:
    """A channel whose leader does not answer."""
    async with AsyncRoutingChannel(fresh_etcd.endpoints) as channel:
        await channel.wait_for_leader()
        await rpc.KVStub(channel).Put(PUT)
        leader = fresh_etcd.leader()
        leader.pause()
        yield channel
        leader.resume()


def in_flight(channel: AsyncRoutingChannel) -> int:
    return sum(stats.in_flight for stats in channel.endpoint_stats().values())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)


async def test_a_call_is_what_a_plain_call_is(channel: AsyncRoutingChannel) -> None:
    call = rpc.KVStub(channel).Range(GET, timeout=20)
    assert isinstance(call, grpc.aio.UnaryUnaryCall)
    assert not call.done()
    assert 0 < call.time_remaining() <= 20
    await call.wait_for_connection()
    response = await call
    assert await call is response
    assert call.done()
    assert not call.cancelled()
    assert await call.code() is grpc.StatusCode.OK
    assert await call.details() == ""
    assert list(await call.initial_metadata()) == []
    assert list(await call.trailing_metadata()) == []
    assert not call.cancel()


async def test_a_call_that_failed_tells_why(channel: AsyncRoutingChannel) -> None:
    call = rpc.LeaseStub(channel).LeaseRevoke(rpc.LeaseRevokeRequest(ID=12345))
    assert await call.code() is grpc.StatusCode.NOT_FOUND
    assert "lease not found" in await call.details()
    with pytest.raises(grpc.aio.AioRpcError, match="lease not found"):
        await call.wait_for_connection()
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError, match="lease not found"):
            await call
    assert call.done()
    assert not call.cancelled()
    assert in_flight(channel) == 0


async def test_a_call_begins_at_once(channel: AsyncRoutingChannel) -> None:
    call = rpc.KVStub(channel).Put(PUT)
    told: list[object] = []
    call.add_done_callback(told.append)
    await until(call.done)
    assert told == [call]
    assert in_flight(channel) == 0  # though nobody has awaited it
    assert (await rpc.KVStub(channel).Range(GET)).kvs[0].value == b"value"


async def test_a_call_that_nobody_awaits_is_tried_again(fresh_etcd: EtcdServers) -> None:
    async with AsyncRoutingChannel(fresh_etcd.endpoints, strategy="round_robin") as channel:
        await channel.wait_for_leader()
        await asyncio.gather(*(rpc.KVStub(channel).Range(GET) for _ in range(6)))
        fresh_etcd.followers[0].kill()
        calls = [rpc.KVStub(channel).Range(GET) for _ in range(9)]
        await until(lambda: all(call.done() for call in calls))
        assert {await call.code() for call in calls} == {grpc.StatusCode.OK}
        assert len({(await call).header.member_id for call in calls}) == 2
        assert in_flight(channel) == 0


async def test_a_call_that_is_dropped_gives_its_pick_back(paused: AsyncRoutingChannel) -> None:
    call = rpc.KVStub(paused).Put(PUT, timeout=0.2)
    assert in_flight(paused) == 1
    del call
    gc.collect()
    await until(lambda: not in_flight(paused))


async def test_cancelling_who_awaits_ends_the_call(paused: AsyncRoutingChannel) -> None:
    call = rpc.KVStub(paused).Put(PUT)

    async def wait() -> None:
        await call

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.02)
    assert in_flight(paused) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.cancelled()
    assert await call.code() is grpc.StatusCode.CANCELLED
    assert in_flight(paused) == 0


async def test_cancelling_between_two_attempts(fresh_etcd: EtcdServers) -> None:
    async with AsyncRoutingChannel(fresh_etcd.endpoints) as channel:
        await channel.wait_for_leader()
        fresh_etcd.stop()
        call = rpc.KVStub(channel).Range(GET)
        await asyncio.sleep(0.1)
        assert not call.done()  # it is being tried again and again
        assert call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert call.cancelled()
        assert await call.code() is grpc.StatusCode.CANCELLED
        assert in_flight(channel) == 0


async def test_wait_for_leaves_nothing_behind(paused: AsyncRoutingChannel) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await rpc.KVStub(paused).Put(PUT)
    assert in_flight(paused) == 0


async def test_a_request_of_another_type_harms_nothing(channel: AsyncRoutingChannel) -> None:
    call = rpc.KVStub(channel).Range(object())
    with pytest.raises(grpc.RpcError):
        await call
    assert in_flight(channel) == 0


async def test_reading_and_writing(channel: AsyncRoutingChannel) -> None:
    leases = rpc.LeaseStub(channel)
    lease = (await leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=60))).ID
    stream = leases.LeaseKeepAlive()
    assert isinstance(stream, grpc.aio.StreamStreamCall)
    await stream.wait_for_connection()
    for _ in range(3):
        await stream.write(rpc.LeaseKeepAliveRequest(ID=lease))
        assert lease == (await stream.read()).ID
    assert not stream.done()
    await stream.done_writing()
    with pytest.raises(asyncio.InvalidStateError, match="half closed"):
        await stream.write(None)
    assert await stream.read() is grpc.aio.EOF
    assert await stream.read() is grpc.aio.EOF
    assert stream.done()
    assert await stream.code() is grpc.StatusCode.OK
    assert not stream.cancel()
    with pytest.raises(asyncio.InvalidStateError, match="already finished"):
        await stream.write(None)
    await leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease))


async def test_writing_beside_an_iterator_is_refused(channel: AsyncRoutingChannel) -> None:
    stream = rpc.LeaseStub(channel).LeaseKeepAlive([])
    with pytest.raises(grpc.aio.UsageError, match="may not be mixed"):
        await stream.write(None)
    assert [response async for response in stream] == []


async def test_an_iterator_that_fails_ends_the_stream(channel: AsyncRoutingChannel) -> None:
    async def requests() -> AsyncIterator[Any]:
        yield rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"key"))
        await asyncio.sleep(0.05)
        raise ValueError("the caller's mistake")

    stream = rpc.WatchStub(channel).Watch(requests())
    assert (await anext(stream)).created
    with pytest.raises(asyncio.CancelledError):
        await anext(stream)
    assert stream.done()


async def test_a_stream_whose_reader_is_cancelled_ends(channel: AsyncRoutingChannel) -> None:
    stream = rpc.WatchStub(channel).Watch()
    told: list[object] = []
    stream.add_done_callback(told.append)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await stream.read()
    assert stream.cancelled()
    assert await stream.code() is grpc.StatusCode.CANCELLED
    assert told == [stream]


async def test_one_response_at_a_time(channel: AsyncRoutingChannel) -> None:
    stream = rpc.MaintenanceStub(channel).Snapshot(rpc.SnapshotRequest(), timeout=20)
    assert isinstance(stream, grpc.aio.UnaryStreamCall)
    assert 0 < stream.time_remaining() <= 20
    size = 0
    while (part := await stream.read()) is not grpc.aio.EOF:
        size += len(part.blob)
    assert size > 1000
    assert await stream.code() is grpc.StatusCode.OK


async def test_connectivity_is_that_of_the_best_member(fresh_etcd: EtcdServers) -> None:
    channel = AsyncRoutingChannel(fresh_etcd.endpoints)
    assert channel.get_state() is grpc.ChannelConnectivity.IDLE
    changed = asyncio.create_task(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE))
    fresh_etcd.members[0].kill()
    async with asyncio.timeout(20):
        await channel.channel_ready()
        await changed
    assert channel.get_state() is grpc.ChannelConnectivity.READY
    fresh_etcd.stop()
    async with asyncio.timeout(20):
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
    await channel.close()
    assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


class CallCount(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Counts the calls of each method."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        method = details.method
        self.seen[method.decode() if isinstance(method, bytes) else method] += 1
        return await continuation(details, request)


async def test_interceptors_see_every_attempt(etcd: EtcdServers) -> None:
    count = CallCount()
    async with AsyncRoutingChannel(etcd.endpoints, interceptors=[count]) as channel:
        stub = rpc.KVStub(channel)
        members = {(await stub.Range(GET)).header.member_id for _ in range(30)}
        assert len(members) == 3
        assert count.seen["/etcdserverpb.KV/Range"] == 30
        assert in_flight(channel) == 0


class Tracer(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Adds to the metadata of each call, as tracers do."""

    def __init__(self) -> None:
        self.found: list[list[tuple[str, str]]] = []

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        if details.method.endswith(b"Put"):
            self.found.append(list(details.metadata))
            details.metadata.add("traceparent", str(len(self.found)))
        return await continuation(details, request)


async def test_what_an_interceptor_adds_stays_with_its_call(etcd: EtcdServers) -> None:
    tracer = Tracer()
    async with AsyncRoutingChannel(etcd.endpoints, interceptors=[tracer]) as channel:
        await channel.wait_for_leader()
        for _ in range(3):
            await rpc.KVStub(channel).Put(PUT)
    async with AsyncRoutingChannel(etcd.endpoints, interceptors=[tracer]) as channel:
        await rpc.KVStub(channel).Put(PUT)
    assert tracer.found == [[("hasleader", "true")]] * 4


async def test_closing_with_grace_lets_calls_end(fresh_etcd: EtcdServers) -> None:
    channel = AsyncRoutingChannel(fresh_etcd.endpoints)
    await channel.wait_for_leader()
    leader = fresh_etcd.leader()
    leader.pause()
    call = rpc.KVStub(channel).Put(PUT)
    asyncio.get_running_loop().call_later(0.3, leader.resume)
    await channel.close(grace=20)
    assert (await call).header.revision
    with pytest.raises(grpc.aio.UsageError):
        rpc.KVStub(channel).Put(PUT)


def test_one_event_loop_after_the_other(etcd: EtcdServers) -> None:
    channel = AsyncRoutingChannel(etcd.endpoints)
    stub = rpc.KVStub(channel)

    async def use() -> int:
        await channel.wait_for_leader()
        await stub.Put(PUT)
        return len({(await stub.Range(GET)).header.member_id for _ in range(30)})

    async def close() -> None:
        await channel.close()

    assert [asyncio.run(use()) for _ in range(3)] == [3, 3, 3]
    asyncio.run(close())


async def test_two_event_loops_at_a_time_are_refused(channel: AsyncRoutingChannel) -> None:
    errors: list[Exception] = []

    async def use() -> None:
        try:
            await rpc.KVStub(channel).Range(GET)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    await asyncio.to_thread(thread.join)
    [error] = errors
    assert isinstance(error, RuntimeError)
    assert "another event loop" in str(error)


async def test_tokens_are_asked_for_once(start_etcd: Starter) -> None:
    etcd = start_etcd(members=1, password="secret")
    user, password = etcd.login or ("", "")
    count = CallCount()
    async with AsyncRoutingChannel(
        etcd.endpoints, user=user, password=password, interceptors=[count]
    ) as channel:
        await asyncio.gather(*(rpc.KVStub(channel).Put(PUT) for _ in range(20)))
    assert count.seen["/etcdserverpb.Auth/Authenticate"] == 1


async def test_aetcd_works_over_it(channel: AsyncRoutingChannel) -> None:
    client = aetcd.Client()
    client.channel = channel
    client._connected.set()
    client.kvstub = rpc.KVStub(channel)
    client.leasestub = rpc.LeaseStub(channel)
    client._watcher = aetcd.watcher.Watcher(rpc.WatchStub(channel), timeout=10)
    events = await client.watch(b"watched")
    lease = await client.lease(60)
    await client.put(b"watched", b"1", lease=lease)
    await client.put(b"watched", b"2")
    seen = []
    async with asyncio.timeout(20):
        async for event in events:
            seen.append(event.kv.value)
            if len(seen) == 2:
                break
    assert seen == [b"1", b"2"]
    assert (await lease.refresh()).TTL == 60
    await lease.revoke()
    await client._watcher.shutdown()
