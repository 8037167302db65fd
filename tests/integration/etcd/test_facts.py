"""What the adapter takes for granted of etcd and grpcio, asked of the real ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
import pytest
from aetcd import rpc

from bench.servers.etcd import EtcdMember, EtcdServers
from bench.servers.process import wait_until
from lb_strategies import OperationClass
from lb_strategies.consensus import FailureKind
from lb_strategies_etcd._endpoints import parse_endpoint
from lb_strategies_etcd._errors import failure_kind
from lb_strategies_etcd._methods import classifier
from lb_strategies_etcd._wire import (
    AUTHENTICATE,
    MEMBER_LIST,
    STATUS,
    AuthenticateRequest,
    MemberListRequest,
    Rpc,
    StatusRequest,
    read_header,
)

from .conftest import Starter

pytestmark = pytest.mark.integration

Request = TypeVar("Request")
Response = TypeVar("Response")

WRITERS = 8
OPTIONS = [
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
]
HASLEADER = (("hasleader", "true"),)


def connect(member: EtcdMember) -> grpc.Channel:
    channel = grpc.insecure_channel(parse_endpoint(member.endpoint).target, options=OPTIONS)
    grpc.channel_ready_future(channel).result(20)
    return channel


def call(channel: grpc.Channel, what: Rpc[Request, Response], request: Request) -> Response:
    method = channel.unary_unary(
        what.path, request_serializer=what.serialize, response_deserializer=what.parse
    )
    answer: Response = method(request, timeout=10)
    return answer


def method(channel: grpc.Channel, path: str) -> Callable[..., Any]:
    """Return an RPC that takes messages of any class, and answers with bytes."""
    found: Callable[..., Any] = channel.unary_unary(
        path, request_serializer=lambda request: request.SerializeToString()
    )
    return found


def a_range(*, serializable: bool = False) -> Any:
    return rpc.RangeRequest(key=b"a", serializable=serializable)


def a_txn(*ranges: Any) -> Any:
    return rpc.TxnRequest(success=[rpc.RequestOp(request_range=one) for one in ranges])


REQUESTS = {
    "range": ("KV/Range", a_range()),
    "local range": ("KV/Range", a_range(serializable=True)),
    "put": ("KV/Put", rpc.PutRequest(key=b"a")),
    "delete": ("KV/DeleteRange", rpc.DeleteRangeRequest(key=b"a")),
    "txn of nothing": ("KV/Txn", rpc.TxnRequest()),
    "txn of ranges": ("KV/Txn", a_txn(a_range(), a_range(serializable=True))),
    "local txn": ("KV/Txn", a_txn(a_range(serializable=True))),
    "txn of a put": (
        "KV/Txn",
        rpc.TxnRequest(success=[rpc.RequestOp(request_put=rpc.PutRequest(key=b"a"))]),
    ),
    "txn of a txn of a range": (
        "KV/Txn",
        rpc.TxnRequest(failure=[rpc.RequestOp(request_txn=a_txn(a_range()))]),
    ),
    "grant": ("Lease/LeaseGrant", rpc.LeaseGrantRequest(TTL=60)),
    "leases": ("Lease/LeaseLeases", rpc.LeaseLeasesRequest()),
    "members": ("Cluster/MemberList", rpc.MemberListRequest()),
    "alarms": ("Maintenance/Alarm", rpc.AlarmRequest()),
    "users": ("Auth/UserList", rpc.AuthUserListRequest()),
    "roles": ("Auth/RoleList", rpc.AuthRoleListRequest()),
}


@pytest.fixture(scope="module")
def alone() -> Iterator[grpc.Channel]:
    with EtcdServers(members=1) as servers, connect(servers.members[0]) as channel:
        yield channel


@pytest.mark.parametrize("name", REQUESTS)
def test_what_goes_through_raft_is_a_write(alone: grpc.Channel, name: str) -> None:
    status = rpc.MaintenanceStub(alone).Status
    path, request = REQUESTS[name]
    path = f"/etcdserverpb.{path}"
    before = status(rpc.StatusRequest()).raftIndex
    for _ in range(5):
        method(alone, path)(request, timeout=10)
    entries = status(rpc.StatusRequest()).raftIndex - before
    assert (entries >= 5) is (classifier(path)(request).kind is OperationClass.WRITE), entries


def test_a_learner_serves_stale_reads_and_nothing_else(fresh_etcd: EtcdServers) -> None:
    learner = fresh_etcd.add_learner()
    with connect(learner) as channel:
        wait_until(
            lambda: call(channel, STATUS, StatusRequest()).is_learner,
            "a learner that knows that it is one",
            timeout=20,
        )
        for path, request in REQUESTS.values():
            path = f"/etcdserverpb.{path}"
            if classifier(path)(request).kind is OperationClass.STALE_READ:
                method(channel, path)(request, timeout=10)
                continue
            with pytest.raises(grpc.RpcError) as caught:
                method(channel, path)(request, timeout=10)
            kind = failure_kind(caught.value.code(), caught.value.details(), hasleader_sent=False)
            assert kind is FailureKind.LEARNER, (path, caught.value)


def test_our_messages_are_understood(etcd: EtcdServers) -> None:
    leader = etcd.leader()
    for member in etcd.members:
        with connect(member) as channel:
            status = call(channel, STATUS, StatusRequest())
            listed = call(channel, MEMBER_LIST, MemberListRequest())
            put = rpc.KVStub(channel).Put(rpc.PutRequest(key=b"a"), timeout=10)
        assert status.header.member_id == listed.header.member_id == member.member_id
        assert status.leader_id == leader.member_id
        assert (status.is_learner, status.errors) == (False, ())
        assert status.version.startswith("3.")
        assert {found.member_id for found in listed.members} == {m.member_id for m in etcd.members}
        assert {url for found in listed.members for url in found.client_urls} == {
            member.client_url for member in etcd.members
        }
        header = read_header(put)
        assert header is not None
        assert header.revision == put.header.revision > 0
        assert (header.member_id, header.leader_id) == (member.member_id, 0)
        assert header.raft_term == status.raft_term


def test_a_wrong_password_is_an_answer_and_a_right_one_gives_a_token(start_etcd: Starter) -> None:
    servers = start_etcd(members=1, password="right")
    with connect(servers.members[0]) as channel:
        authentication = call(channel, AUTHENTICATE, AuthenticateRequest("root", "right"))
        get = rpc.KVStub(channel).Range
        get(a_range(), metadata=[("token", authentication.token)], timeout=10)
        for metadata, kind in (
            ([("token", "old.1")], FailureKind.UNAUTHENTICATED),
            ([], FailureKind.UNAUTHENTICATED),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                get(a_range(), metadata=metadata, timeout=10)
            assert kind_of(caught.value) is kind
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, AUTHENTICATE, AuthenticateRequest("root", "wrong"))
        assert kind_of(caught.value) is FailureKind.ANSWER


def test_without_a_quorum_hasleader_is_refused_at_once(fresh_etcd: EtcdServers) -> None:
    member, *others = fresh_etcd.members
    with connect(member) as channel:
        for other in others:
            other.kill()
        wait_until(
            lambda: not call(channel, STATUS, StatusRequest()).leader_id,
            "a member that knows no leader",
            timeout=30,
        )
        with pytest.raises(grpc.RpcError) as caught:
            rpc.KVStub(channel).Put(rpc.PutRequest(key=b"a"), timeout=30, metadata=HASLEADER)
        assert kind_of(caught.value, hasleader_sent=True) is FailureKind.NO_LEADER


def kind_of(error: grpc.RpcError, *, hasleader_sent: bool = False) -> FailureKind:
    return failure_kind(error.code(), error.details(), hasleader_sent=hasleader_sent)


def all_keys(member: EtcdMember) -> set[bytes]:
    """Return every key there is; read again while the members elect a leader."""
    everything = rpc.RangeRequest(key=b"\0", range_end=b"\0", keys_only=True)
    with connect(member) as channel:
        for _ in range(50):
            try:
                found = rpc.KVStub(channel).Range(everything, timeout=10, metadata=HASLEADER)
            except grpc.RpcError as error:
                if kind_of(error, hasleader_sent=True) is FailureKind.ANSWER:
                    raise
                time.sleep(0.2)
            else:
                return {kv.key for kv in found.kvs}
    raise AssertionError("no leader was elected")


class Writers:
    """Write keys of their own to one member, each once, until told to stop.

    What became of them is asked of a member that was not killed: one that is started again may
    have lost what it acknowledged (https://github.com/etcd-io/etcd/pull/13908, before 3.5.3).
    """

    def __init__(self, member: EtcdMember) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[tuple[bytes, FailureKind, str]] = []
        self._channels = [connect(member) for _ in range(2)]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        for channel in self._channels:
            channel.close()

    def _write(self, number: int) -> None:
        put = rpc.KVStub(self._channels[number % len(self._channels)]).Put
        count = 0
        while not self._stop.is_set():
            count += 1
            key = f"{number}/{count}".encode()
            try:
                put(rpc.PutRequest(key=key, value=bytes(256)), timeout=5, metadata=HASLEADER)
            except grpc.RpcError as error:
                self.failed.append((key, kind_of(error, hasleader_sent=True), str(error)))
                time.sleep(0.01)
            else:
                self.acknowledged.append(key)

    def check(self, member: EtcdMember) -> set[FailureKind]:
        """Check what became of the writes, and return what the failed ones said."""
        there = all_keys(member)
        assert self.acknowledged
        assert there.issuperset(self.acknowledged)
        for key, kind, error in self.failed:
            assert kind.may_have_executed or key not in there, error
        return {kind for _, kind, _ in self.failed}


@pytest.mark.parametrize(
    ("role", "end"), [("leader", "kill"), ("follower", "terminate"), ("leader", "cut")]
)
def test_what_counts_as_not_executed_was_not(start_etcd: Starter, role: str, end: str) -> None:
    servers = start_etcd(members=3, **({"client_rtt": 0.0} if end == "cut" else {}))
    member = servers.leader() if role == "leader" else servers.followers[0]
    survivor = servers.followers[1]
    with Writers(member) as writers:
        time.sleep(0.7)
        match end:
            case "kill":
                member.kill()
            case "terminate":
                member.terminate()
            case "cut":
                member.cut(peer=False)
        wait_until(
            lambda: any(kind is FailureKind.UNREACHABLE for _, kind, _ in list(writers.failed)),
            "a write that finds no connection",
            timeout=20,
        )
        time.sleep(0.2)
    assert FailureKind.ANSWER not in writers.check(survivor)


def test_proposals_dropped_in_a_leader_transfer_were_not_executed(etcd: EtcdServers) -> None:
    leader = etcd.leader()
    with Writers(leader) as writers:
        for to in (etcd.followers[0], leader) * 2:
            time.sleep(0.2)
            etcd.move_leader(to)
    assert not writers.check(leader) & {FailureKind.ANSWER, FailureKind.UNREACHABLE}
