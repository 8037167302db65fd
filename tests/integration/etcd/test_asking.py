"""Which requests ask their member to refuse at once if it knows no leader."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import aetcd.rpc as rpc
import grpc
import pytest
from aetcd.rpc import rpc_pb2_grpc

from bench.servers.etcd import EtcdServers
from bench.servers.process import wait_until
from lb_strategies import ConsensusOptions
from tests.integration.etcd.conftest import Connect
from tests.integration.etcd.drivers import Driver

pytestmark = pytest.mark.integration

GET = rpc.RangeRequest(key=b"key")
PUT = rpc.PutRequest(key=b"key", value=b"value")
ASKED, NOT_ASKED = True, False


class Member(rpc_pb2_grpc.KVServicer, rpc_pb2_grpc.MaintenanceServicer):  # type: ignore[misc]
    """A server that notes who asked it for a leader, as no member of etcd tells."""

    leader_id = 1
    term = 1

    def __init__(self, member_id: int) -> None:
        self.id = member_id
        self.puts: list[bool] = []
        self.ranges: list[bool] = []
        self.fails = False
        self._server = grpc.server(ThreadPoolExecutor(4))
        rpc_pb2_grpc.add_KVServicer_to_server(self, self._server)
        rpc_pb2_grpc.add_MaintenanceServicer_to_server(self, self._server)
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def _header(self) -> Any:
        return rpc.ResponseHeader(member_id=self.id, raft_term=Member.term)

    def Put(self, request: Any, context: Any) -> Any:
        self.puts.append(_asks(context))
        if self.fails:
            context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: request timed out")
        return rpc.PutResponse(header=self._header())

    def Range(self, request: Any, context: Any) -> Any:
        self.ranges.append(_asks(context))
        return rpc.RangeResponse(header=self._header())

    def Status(self, request: Any, context: Any) -> Any:
        return rpc.StatusResponse(
            header=self._header(), leader=Member.leader_id, raftTerm=Member.term
        )


def _asks(context: Any) -> bool:
    return ("hasleader", "true") in [(m.key, m.value) for m in context.invocation_metadata()]


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Member]]:
    monkeypatch.setattr(Member, "leader_id", 1)
    monkeypatch.setattr(Member, "term", 1)
    with ExitStack() as stack:
        started = [Member(1), Member(2)]
        for member in started:
            stack.callback(member.stop)
        yield started


@pytest.fixture
def driver(members: list[Member], connect: Connect) -> Driver:
    """A channel to them that knows that the first one leads."""
    driver = connect([m.endpoint for m in members], options=ConsensusOptions(poll_interval=0.05))
    assert driver.wait_for_leader() == members[0].endpoint
    return driver


@pytest.fixture
def for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a write vouch for its member without end."""
    monkeypatch.setattr("lb_strategies_etcd._routing._VOUCHED_FOR", 1e9)


def put(driver: Driver, times: int = 1) -> None:
    for _ in range(times):
        driver.call(rpc.KVStub(driver.channel).Put, PUT)


def lead(driver: Driver, leader: Member) -> None:
    """Have `leader` lead, and wait until `driver` knows."""
    Member.leader_id, Member.term = leader.id, Member.term + 1
    wait_until(lambda: _leader_of(driver) == leader.endpoint, "the new leader")


def _leader_of(driver: Driver) -> str:
    driver.sleep(0.01)
    return str(driver.channel.leader)


def test_a_write_asks_unless_one_was_just_carried_out(
    members: list[Member], driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, expected in ((0.0, [ASKED] * 3), (1e9, [NOT_ASKED] * 3)):
        monkeypatch.setattr("lb_strategies_etcd._routing._VOUCHED_FOR", seconds)
        members[0].puts.clear()
        put(driver, times=3)
        assert members[0].puts == expected


def test_the_first_write_asks_and_one_after_a_rest_too(
    members: list[Member], driver: Driver
) -> None:
    for _ in range(2):
        put(driver)
        driver.sleep(0.2)
    assert members[0].puts == [ASKED, ASKED]


@pytest.mark.usefixtures("for_ever")
def test_a_member_vouches_for_itself_alone(members: list[Member], driver: Driver) -> None:
    put(driver)
    lead(driver, members[1])
    put(driver, times=2)
    lead(driver, members[0])
    put(driver)
    assert (members[0].puts, members[1].puts) == ([ASKED, ASKED], [ASKED, NOT_ASKED])


@pytest.mark.usefixtures("for_ever")
def test_a_write_that_failed_vouches_for_nobody(members: list[Member], driver: Driver) -> None:
    members[0].fails = True
    for _ in range(2):
        with pytest.raises(grpc.RpcError):
            put(driver)
    assert members[0].puts == [ASKED, ASKED]


@pytest.mark.usefixtures("for_ever")
def test_a_read_neither_asks_nor_vouches(members: list[Member], driver: Driver) -> None:
    for _ in range(10):
        driver.call(rpc.KVStub(driver.channel).Range, GET)
    put(driver)
    assert {*members[0].ranges, *members[1].ranges} == {NOT_ASKED}
    assert members[0].puts == [ASKED]


def test_a_leader_that_lost_its_quorum_refuses_writes_at_once(
    fresh_etcd: EtcdServers, connect: Connect
) -> None:
    """It has carried some out just before; etcd itself would have them wait for 7 s."""
    leader = fresh_etcd.leader()
    driver = connect([leader.endpoint], options=ConsensusOptions(retry_for=0.0))
    put(driver, times=20)
    for follower in fresh_etcd.followers:
        follower.pause()
    wait_until(lambda: not leader.status().leader_id, "a leader that stepped down")
    with pytest.raises(grpc.RpcError, match="no leader"):
        driver.call(rpc.KVStub(driver.channel).Put, PUT, timeout=30)
