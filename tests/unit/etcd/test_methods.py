"""Each RPC of etcd, and what its message changes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_strategies import Operation, OperationClass
from lb_strategies_etcd._methods import classifier

from .messages import MemberListRequest, Op, Range, Txn

WRITE = OperationClass.WRITE
READ = OperationClass.LINEARIZABLE_READ
STALE = OperationClass.STALE_READ
MEMBER = OperationClass.MEMBER
STICKY = OperationClass.STICKY_STREAM
LEADER = OperationClass.LEADER_STREAM

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
MEMBER_LIST = "/etcdserverpb.Cluster/MemberList"

RPCS = {
    "etcdserverpb.KV": {
        READ: "Range RangeStream",
        WRITE: "Put DeleteRange Txn Compact",
    },
    "etcdserverpb.Watch": {STICKY: "Watch"},
    "etcdserverpb.Lease": {
        WRITE: "LeaseGrant LeaseRevoke LeaseTimeToLive",
        LEADER: "LeaseKeepAlive",
        READ: "LeaseLeases",
    },
    "etcdserverpb.Cluster": {
        WRITE: "MemberAdd MemberRemove MemberUpdate MemberPromote",
        READ: "MemberList",
    },
    "etcdserverpb.Maintenance": {
        WRITE: "Alarm MoveLeader Downgrade",
        MEMBER: "Status Defragment Hash HashKV Snapshot",
    },
    "etcdserverpb.Auth": {
        WRITE: "AuthEnable AuthDisable AuthStatus Authenticate UserAdd UserGet UserList UserDelete "
        "UserChangePassword UserGrantRole UserRevokeRole RoleAdd RoleGet RoleList RoleDelete "
        "RoleGrantPermission RoleRevokePermission",
    },
    "v3lockpb.Lock": {WRITE: "Lock Unlock"},
    "v3electionpb.Election": {
        WRITE: "Campaign Proclaim Resign",
        READ: "Leader",
        STICKY: "Observe",
    },
    "grpc.health.v1.Health": {MEMBER: "Check Watch"},
}
UNTIMED = {
    "/etcdserverpb.KV/RangeStream",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Maintenance/Snapshot",
    "/v3lockpb.Lock/Lock",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Observe",
    "/grpc.health.v1.Health/Watch",
}
METHODS = {
    f"/{service}/{name}": kind
    for service, kinds in RPCS.items()
    for kind, names in kinds.items()
    for name in names.split()
}


def classify(method: str, request: object = None) -> Operation:
    return classifier(method)(request)


@pytest.mark.parametrize(
    "request_", [None, b"bytes", object(), iter(())], ids=lambda r: type(r).__name__
)
@pytest.mark.parametrize("method", METHODS)
def test_the_method_decides_when_the_message_is_not_understood(
    method: str, request_: object
) -> None:
    operation = classify(method, request_)
    assert operation.kind is METHODS[method]
    assert operation.timed is (method not in UNTIMED)
    assert operation.member is None
    assert str(operation.label).endswith(method.rpartition("/")[2])


def test_equal_labels_are_equal_kinds() -> None:
    labels = [classify(method).label for method in METHODS]
    assert len(set(labels)) == len(labels) == 51


@pytest.mark.parametrize(
    "method", ["/etcdserverpb.KV/Future", "/other.Service/Range", "Range", "", "/v3lockpb.Lock"]
)
def test_an_unknown_method_is_a_write(method: str) -> None:
    assert classify(method, Range(serializable=True)).kind is WRITE


@pytest.mark.parametrize(
    ("request_", "label"),
    [
        (Range(), "Range"),
        (Range(limit=7, count_only=True, keys_only=True), "Range"),
        (Range(b"z"), "Range.all"),
        (Range(b"z", limit=20_000), "Range.all"),
        (Range(b"z", limit=20_000, keys_only=True), "Range.keys"),
        (Range(b"z", keys_only=True), "Range.keys"),
        (Range(b"z", count_only=True, limit=5), "Range.count"),
        (Range(b"z", limit=1), "Range.10"),
        (Range(b"z", limit=10), "Range.10"),
        (Range(b"z", limit=11, keys_only=True), "Range.100"),
        (Range(b"\0", limit=1_000), "Range.1000"),
        (Range(b"\0", limit=10_000), "Range.10000"),
        (Range(b"z", limit=-1), "Range.all"),
    ],
)
def test_ranges_are_told_apart_by_what_they_cost(request_: Range, label: str) -> None:
    assert classify(RANGE, request_) == Operation(READ, label)
    request_.serializable = True
    assert classify(RANGE, request_) == Operation(STALE, f"{label}.local")


@given(st.builds(Range))
def test_only_a_serializable_range_may_be_stale(request_: Range) -> None:
    expected = STALE if request_.serializable else READ
    assert classify(RANGE, request_).kind is expected


def test_there_are_few_labels_for_all_ranges() -> None:
    labels = {
        classify(RANGE, Range(end, limit, *flags)).label
        for end in (b"", b"z")
        for limit in range(0, 30_000, 7)
        for flags in product((False, True), repeat=3)
    }
    assert len(labels) == 16


RANGES = st.builds(Range, serializable=st.booleans())
WRITES = st.sampled_from(["request_put", "request_delete_range", ""])


def txns(operations: st.SearchStrategy[Range | Txn | str]) -> st.SearchStrategy[Txn]:
    branch = st.lists(st.builds(Op, operations), max_size=4)
    return st.builds(Txn, branch, branch)


ANY_TXN = st.recursive(
    txns(RANGES | WRITES), lambda inner: txns(RANGES | WRITES | inner), max_leaves=8
)


@given(ANY_TXN)
def test_a_transaction_is_a_read_if_all_its_operations_are_ranges(txn: Txn) -> None:
    operations = [op.of for op in txn.success + txn.failure]
    operation = classify(TXN, txn)
    if not all(isinstance(of, Range) for of in operations):
        assert operation == Operation(WRITE, "Txn")
    elif all(of.serializable for of in operations if isinstance(of, Range)):
        assert operation == Operation(READ, "Txn.local")  # a learner refuses even these
    else:
        assert operation == Operation(READ, "Txn.read")


@given(txns(RANGES))
def test_a_transaction_within_a_transaction_goes_to_the_leader(inner: Txn) -> None:
    assert classify(TXN, Txn([Op(inner)])).kind is WRITE
    assert classify(TXN, Txn([Op(Range())], [Op(Range()), Op(inner)])).kind is WRITE


def test_a_message_that_names_its_operations_otherwise_is_a_write() -> None:
    class Other(Op):
        def WhichOneof(self, group: str) -> str:
            raise ValueError(f"no such group: {group}")

    assert classify(TXN, Txn([Other(Range())])).kind is WRITE


@pytest.mark.parametrize(
    ("linearizable", "label"), [(True, "MemberList"), (False, "MemberList.local")]
)
def test_any_voter_lists_the_members(linearizable: bool, label: str) -> None:
    assert classify(MEMBER_LIST, MemberListRequest(linearizable)) == Operation(READ, label)
