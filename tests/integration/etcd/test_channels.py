"""What both routing channels do, against real members."""

from __future__ import annotations

import time
from collections import Counter

import aetcd.rpc as rpc
import grpc
import pytest

from bench.servers.etcd import EtcdServers
from lb_strategies import ConsensusOptions
from tests.integration.etcd.conftest import Connect, Starter
from tests.integration.etcd.drivers import Driver

pytestmark = pytest.mark.integration

GET = rpc.RangeRequest(key=b"key")
PUT = rpc.PutRequest(key=b"key", value=b"value")


def readers(driver: Driver, count: int) -> Counter[int]:
    """Return how many of `count` reads each member answered."""
    read = rpc.KVStub(driver.channel).Range
    return Counter(driver.call(read, GET).header.member_id for _ in range(count))


def in_flight(driver: Driver) -> int:
    return sum(stats.in_flight for stats in driver.channel.endpoint_stats().values())


def test_reads_are_spread_and_writes_go_to_the_leader(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    leader = etcd.leader()
    assert driver.wait_for_leader() == leader.endpoint
    write = rpc.KVStub(driver.channel).Put
    writers = {driver.call(write, PUT).header.member_id for _ in range(10)}
    assert writers == {leader.member_id}
    found = readers(driver, 90)
    assert set(found) == {member.member_id for member in etcd.members}
    assert min(found.values()) >= 15
    assert in_flight(driver) == 0


@pytest.mark.parametrize("strategy", ["round_robin", "latency_based", "boltzmann"])
def test_other_strategies(etcd: EtcdServers, connect: Connect, strategy: str) -> None:
    driver = connect(etcd, strategy=strategy)
    driver.wait_for_leader()
    assert len(readers(driver, 60)) == 3
    driver.call(rpc.KVStub(driver.channel).Put, PUT)


def test_one_member_is_enough(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd.endpoints[:1])
    driver.call(rpc.KVStub(driver.channel).Put, PUT)
    assert driver.call(rpc.KVStub(driver.channel).Range, GET).kvs[0].value == b"value"


def test_a_call_tells_how_it_ended(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    response, code = driver.with_call(rpc.KVStub(driver.channel).Put, PUT)
    assert response.header.revision
    assert code is grpc.StatusCode.OK


def test_an_error_is_grpcs_own(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    revoke = rpc.LeaseStub(driver.channel).LeaseRevoke
    with pytest.raises(grpc.RpcError) as caught:
        driver.call(revoke, rpc.LeaseRevokeRequest(ID=12345))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert in_flight(driver) == 0


def test_many_calls_at_once(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd, channels_per_member=2)
    stub = rpc.KVStub(driver.channel)
    started = [driver.start(stub.Range, GET) for _ in range(60)]
    found = Counter(driver.result(one).header.member_id for one in started)
    assert len(found) == 3
    assert all(one.done() and not one.cancelled() for one in started)
    assert in_flight(driver) == 0


def test_a_callback_is_told_of_the_end(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    told: list[object] = []
    started = driver.start(rpc.KVStub(driver.channel).Range, GET)
    started.add_done_callback(told.append)
    driver.result(started)
    driver.sleep(0.05)
    started.add_done_callback(told.append)
    assert told == [started, started]


def test_the_callers_own_token_goes_along(start_etcd: Starter, connect: Connect) -> None:
    etcd = start_etcd(members=1, password="secret")
    user, password = etcd.login or ("", "")
    plain = connect(etcd)
    login = rpc.AuthenticateRequest(name=user, password=password)
    token = plain.call(rpc.AuthStub(plain.channel).Authenticate, login).token
    stub = rpc.KVStub(plain.channel)
    plain.call(stub.Put, PUT, metadata=(("token", token),), timeout=10)
    with pytest.raises(grpc.RpcError) as caught:
        plain.call(stub.Put, PUT, timeout=10)
    assert "user name is empty" in caught.value.details()


def test_a_time_limit_is_kept(fresh_etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(fresh_etcd)
    driver.wait_for_leader()
    stub = rpc.KVStub(driver.channel)
    driver.call(stub.Put, PUT)
    for member in fresh_etcd.members:  # or another leader might answer
        member.pause()
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        driver.call(stub.Put, PUT, timeout=0.4)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began >= 0.35
    assert in_flight(driver) == 0


def test_a_call_can_be_cancelled(fresh_etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(fresh_etcd)
    driver.wait_for_leader()
    for member in fresh_etcd.members:  # or another leader might answer
        member.pause()
    started = driver.start(rpc.KVStub(driver.channel).Put, PUT)
    assert in_flight(driver) == 1
    assert started.cancel()
    with pytest.raises(driver.cancelled_error):
        driver.result(started)
    assert started.cancelled()
    assert started.done()
    assert not started.cancel()
    assert in_flight(driver) == 0


def test_a_learner_is_not_asked(fresh_etcd: EtcdServers, connect: Connect) -> None:
    learner = fresh_etcd.add_learner()
    driver = connect(fresh_etcd)
    found = readers(driver, 60)
    assert found.total() == 60
    assert learner.member_id not in found


def test_reads_go_on_without_a_killed_leader(fresh_etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(fresh_etcd)
    driver.wait_for_leader()
    stub = rpc.KVStub(driver.channel)
    driver.call(stub.Put, PUT)
    leader = fresh_etcd.leader()
    leader.kill()
    found = readers(driver, 60)  # none fails
    assert leader.member_id not in found
    answer = driver.call(stub.Put, PUT, timeout=20)
    assert answer.header.member_id == fresh_etcd.leader().member_id


def test_a_paused_follower_is_left(fresh_etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(fresh_etcd, options=ConsensusOptions(poll_interval=0.1, poll_timeout=0.3))
    driver.wait_for_leader()
    assert len(readers(driver, 30)) == 3
    paused = fresh_etcd.followers[0]
    paused.pause()
    readers(driver, 10)  # some may wait for it, but none fails
    driver.sleep(1.5)
    began = time.monotonic()
    found = readers(driver, 30)
    assert time.monotonic() - began < 5
    assert paused.member_id not in found
    paused.resume()


def test_tokens_are_renewed(start_etcd: Starter, connect: Connect) -> None:
    etcd = start_etcd(members=3, password="secret", auth_token_ttl=1)
    user, password = etcd.login or ("", "")
    driver = connect(etcd, user=user, password=password)
    stub = rpc.KVStub(driver.channel)
    driver.wait_for_leader()
    for _ in range(3):
        driver.call(stub.Put, PUT)
        assert len(readers(driver, 12)) == 3
        driver.sleep(2.2)  # every token has expired


def test_wrong_passwords_are_told(start_etcd: Starter, connect: Connect) -> None:
    etcd = start_etcd(members=1, password="secret")
    driver = connect(etcd, user="root", password="wrong")
    with pytest.raises(grpc.RpcError) as caught:
        driver.call(rpc.KVStub(driver.channel).Put, PUT, timeout=10)
    assert "authentication failed" in caught.value.details()
    assert "wrong" not in str(caught.value)


def test_a_watch_sees_what_is_written(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    create = rpc.WatchCreateRequest(key=b"key")
    watch = rpc.WatchRequest(create_request=create)
    stream, _ = driver.open(rpc.WatchStub(driver.channel).Watch, watch)
    assert driver.read(stream).created
    for value in (b"1", b"2"):
        driver.call(rpc.KVStub(driver.channel).Put, rpc.PutRequest(key=b"key", value=value))
        assert driver.read(stream).events[0].kv.value == value
    assert stream.cancel()


def test_leases_are_kept_alive_by_the_leader(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    driver.wait_for_leader()
    leases = rpc.LeaseStub(driver.channel)
    lease = driver.call(leases.LeaseGrant, rpc.LeaseGrantRequest(TTL=60)).ID
    keep = rpc.LeaseKeepAliveRequest(ID=lease)
    stream, _ = driver.open(leases.LeaseKeepAlive, keep, keep)
    answers = [driver.read(stream) for _ in range(2)]
    assert {answer.ID for answer in answers} == {lease}
    assert {answer.header.member_id for answer in answers} == {etcd.leader().member_id}
    stream.cancel()
    driver.call(leases.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease))


def test_keep_alives_follow_the_leader(fresh_etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(fresh_etcd)
    driver.wait_for_leader()
    leases = rpc.LeaseStub(driver.channel)
    lease = driver.call(leases.LeaseGrant, rpc.LeaseGrantRequest(TTL=60)).ID
    keep = rpc.LeaseKeepAliveRequest(ID=lease)
    stream, send = driver.open(leases.LeaseKeepAlive, keep)
    assert lease == driver.read(stream).ID
    successor = fresh_etcd.followers[0]
    fresh_etcd.move_leader(successor)
    deadline = time.monotonic() + 10
    while driver.channel.leader != successor.endpoint:
        assert time.monotonic() < deadline
        driver.sleep(0.05)
    send(keep)
    answer = driver.read(stream)
    assert (answer.ID, answer.header.member_id) == (lease, successor.member_id)
    stream.cancel()


def test_a_stream_of_a_killed_member_fails(fresh_etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(fresh_etcd)
    create = rpc.WatchCreateRequest(key=b"key")
    watch = rpc.WatchRequest(create_request=create)
    stream, _ = driver.open(rpc.WatchStub(driver.channel).Watch, watch)
    driver.read(stream)
    [member] = [m for m in fresh_etcd.members if m.endpoint == stream.member]
    member.kill()
    with pytest.raises(grpc.RpcError):
        driver.read(stream)


def test_a_stream_of_a_paused_member_fails(fresh_etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(fresh_etcd, options=ConsensusOptions(poll_interval=0.1, poll_timeout=0.3))
    create = rpc.WatchCreateRequest(key=b"key")
    watch = rpc.WatchRequest(create_request=create)
    stream, _ = driver.open(rpc.WatchStub(driver.channel).Watch, watch)
    driver.read(stream)
    [member] = [m for m in fresh_etcd.members if m.endpoint == stream.member]
    member.pause()
    with pytest.raises(grpc.RpcError) as caught:
        driver.read(stream)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert member.endpoint in str(caught.value)
    member.resume()


def test_a_stream_of_responses(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    snapshot = rpc.MaintenanceStub(driver.channel).Snapshot
    parts = driver.read_all(snapshot, rpc.SnapshotRequest())
    assert parts[-1].remaining_bytes == 0
    assert sum(len(part.blob) for part in parts) > 1000


def test_a_closed_channel_says_so(etcd: EtcdServers, connect: Connect) -> None:
    driver = connect(etcd)
    stub = rpc.KVStub(driver.channel)
    driver.call(stub.Put, PUT)
    driver.close()
    with pytest.raises(Exception, match=r"closed channel|Channel is closed"):
        driver.call(stub.Range, GET)


def test_what_is_in_flight_is_cancelled_by_closing(
    fresh_etcd: EtcdServers, connect: Connect
) -> None:
    driver = connect(fresh_etcd)
    driver.wait_for_leader()
    for member in fresh_etcd.members:  # or another leader might answer
        member.pause()
    started = driver.start(rpc.KVStub(driver.channel).Put, PUT)
    driver.close()
    with pytest.raises((grpc.RpcError, driver.cancelled_error)):
        driver.result(started)
    assert in_flight(driver) == 0
