"""What each of etcd's RPCs needs, decided from its method and its message.

Source: the handlers in etcd's ``server/etcdserver/v3_server.go`` and ``api/v3rpc``. Where the
name of the method does not decide, the message does, by the names that etcd's ``rpc.proto`` gives
its fields: so the messages of any client will do, generated from whichever copy of that file.
A message that has no such fields (a client may serialise by itself and send bytes) gets what is
right whatever it says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final

from lb_strategies import Operation, OperationClass

_WRITE: Final = OperationClass.WRITE
_READ: Final = OperationClass.LINEARIZABLE_READ
_STALE: Final = OperationClass.STALE_READ
_MEMBER: Final = OperationClass.MEMBER


def fixed_operation(method: str) -> Operation | None:
    """Return what an RPC needs whatever its message says; None if the message decides.

    An RPC is not timed if its duration is not the member's doing: it waits for another client (a
    lock), or lasts as long as its caller reads (a stream). An unknown method counts as a write:
    the leader can serve everything, and a write is never sent again once it may have been
    executed.

    Args:
        method: path of the RPC, such as ``"/etcdserverpb.KV/Range"``.
    """
    if method in _INSPECTED:
        return None
    operation = _OPERATIONS.get(method)
    return operation if operation is not None else Operation(_WRITE, method.rpartition("/")[2])


def classifier(method: str) -> Callable[[object], Operation]:
    """Return what tells what an RPC needs from its message.

    That is None where there is none yet (a stream of requests), and is never changed. Equal
    labels cost about the same, and there are few.

    Args:
        method: as for `fixed_operation`.
    """
    fixed = fixed_operation(method)
    if fixed is not None:
        return lambda _: fixed
    inspect, unclear = _INSPECTED[method], _OPERATIONS[method]

    def classify(request: object) -> Operation:
        try:
            return inspect(request)
        except (AttributeError, TypeError, ValueError):
            return unclear  # bytes, or a message of another make

    return classify


def _table(kind: OperationClass, *labels: str, timed: bool = True) -> dict[str, Operation]:
    return {label: Operation(kind, label, timed) for label in labels}


# The shapes of a range, which differ in cost: one key, a count, keys without values, a page (by
# the power of ten that its limit does not exceed) and everything from one key to another.
_PAGES: Final = (10, 100, 1_000, 10_000)
_PAGE_LABELS: Final = tuple(f"Range.{page}" for page in _PAGES)
_RANGES: Final = _table(_READ, "Range", "Range.count", "Range.keys", "Range.all", *_PAGE_LABELS)
_LOCAL_RANGES: Final = {label: Operation(_STALE, f"{label}.local") for label in _RANGES}
_RANGE: Final = _RANGES["Range"]  # as for most requests
_LOCAL_RANGE: Final = _LOCAL_RANGES["Range"]

_TXN: Final = Operation(_WRITE, "Txn")
_READ_TXN: Final = Operation(_READ, "Txn.read")
_LOCAL_TXN: Final = Operation(_READ, "Txn.local")

_MEMBERS: Final = Operation(_READ, "MemberList")
_LOCAL_MEMBERS: Final = Operation(_READ, "MemberList.local")


def _range(request: Any) -> Operation:
    # The kind first: if the rest cannot be told, the whole is taken for a plain read anyway.
    is_local = request.serializable
    if not request.range_end:
        return _LOCAL_RANGE if is_local else _RANGE
    ranges = _LOCAL_RANGES if is_local else _RANGES
    if request.count_only:
        return ranges["Range.count"]
    limit = request.limit
    if 0 < limit <= _PAGES[-1]:
        return ranges[_PAGE_LABELS[bisect_left(_PAGES, limit)]]
    return ranges["Range.keys" if request.keys_only else "Range.all"]


def _txn(request: Any) -> Operation:
    """Tell transactions that only read from those that may write.

    The server takes one for a read if all its operations are plain ranges. A transaction within
    it goes through Raft even if it only reads, and so belongs to the leader. If all ranges are
    serializable, any voter answers from its own state, but a learner refuses: this is not
    `OperationClass.STALE_READ`.
    """
    is_local = True
    for branch in (request.success, request.failure):
        for operation in branch:
            if operation.WhichOneof("request") != "request_range":
                return _TXN
            is_local = is_local and bool(operation.request_range.serializable)
    return _LOCAL_TXN if is_local else _READ_TXN


def _member_list(request: Any) -> Operation:
    """Tell lists that a member gives from its own state from those that it confirms.

    Both are answered by any voter and by no learner; they only cost differently. Servers before
    3.5, and clients that have no such field, know the first kind only.
    """
    return _MEMBERS if request.linearizable else _LOCAL_MEMBERS


_Inspect = Callable[[Any], Operation]

_KINDS: Final[dict[str, dict[str, Operation]]] = {
    "etcdserverpb.KV": {
        "Range": _RANGES["Range"],
        "Txn": _TXN,
        # No learner serves it, serializable or not; it lasts as long as its caller reads.
        **_table(_READ, "RangeStream", timed=False),
        **_table(_WRITE, "Put", "DeleteRange", "Compact"),
    },
    "etcdserverpb.Watch": _table(OperationClass.STICKY_STREAM, "Watch", timed=False),
    "etcdserverpb.Lease": {
        # A follower asks the leader by HTTP how long a lease has to live.
        **_table(_WRITE, "LeaseGrant", "LeaseRevoke", "LeaseTimeToLive"),
        **_table(OperationClass.LEADER_STREAM, "LeaseKeepAlive", timed=False),
        # From the member's own state, but a learner refuses.
        **_table(_READ, "LeaseLeases"),
    },
    "etcdserverpb.Cluster": {
        "MemberList": _MEMBERS,
        **_table(_WRITE, "MemberAdd", "MemberRemove", "MemberUpdate", "MemberPromote"),
    },
    "etcdserverpb.Maintenance": {
        # Alarms go through Raft even if they are only asked for, and nobody but the leader
        # moves the leader.
        **_table(_WRITE, "Alarm", "Downgrade", "MoveLeader"),
        **_table(_MEMBER, "Status", "Defragment", "Hash", "HashKV"),
        **_table(_MEMBER, "Snapshot", timed=False),
    },
    # All of them go through Raft, those that only ask as well.
    "etcdserverpb.Auth": _table(
        _WRITE,
        *("AuthEnable", "AuthDisable", "AuthStatus", "Authenticate"),
        *("UserAdd", "UserGet", "UserList", "UserDelete", "UserChangePassword"),
        *("UserGrantRole", "UserRevokeRole", "RoleAdd", "RoleGet", "RoleList", "RoleDelete"),
        *("RoleGrantPermission", "RoleRevokePermission"),
    ),
    # These two are clients of etcd within the server; they write, and wait for others.
    "v3lockpb.Lock": {
        **_table(_WRITE, "Lock", timed=False),
        **_table(_WRITE, "Unlock"),
    },
    "v3electionpb.Election": {
        **_table(_WRITE, "Campaign", timed=False),
        **_table(_WRITE, "Proclaim", "Resign"),
        **_table(_READ, "Leader"),
        **_table(OperationClass.STICKY_STREAM, "Observe", timed=False),
    },
    # Of gRPC, not of etcd, but every etcd serves it, each member for itself.
    "grpc.health.v1.Health": {
        "Check": Operation(_MEMBER, "Health.Check"),
        "Watch": Operation(_MEMBER, "Health.Watch", timed=False),
    },
}

_INSPECTED: Final[dict[str, _Inspect]] = {
    "/etcdserverpb.KV/Range": _range,
    "/etcdserverpb.KV/Txn": _txn,
    "/etcdserverpb.Cluster/MemberList": _member_list,
}

_OPERATIONS: Final[dict[str, Operation]] = {
    f"/{service}/{name}": operation
    for service, methods in _KINDS.items()
    for name, operation in methods.items()
}
