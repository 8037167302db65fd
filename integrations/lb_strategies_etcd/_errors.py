"""What a failed RPC says of the member, and of whether it may be sent again.

Sources: etcd's ``api/v3rpc/rpctypes/error.go`` and the handlers that return those errors; for
what gRPC itself reports, runs of grpcio 1.85 against members that were killed, paused, closed or
never there. The code alone decides little: UNAVAILABLE covers both what never left the client and
what a member executed before its connection broke. So the text decides, and whatever is not known
to be harmless counts as possibly executed.

A channel must not retry by itself, so ``grpc.enable_retries`` must be 0: with a retry policy in its
service config it reports the end of its last attempt only. In a run with kill -9 under load, 11 of
826 puts that had "failed to connect to all addresses" had been executed by an earlier attempt; with
that option, none of 8,227.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lb_strategies.consensus import FailureKind

if TYPE_CHECKING:
    import grpc

_NEVER_SENT: Final = (
    # gRPC's pick of a connection failed; what follows is the last reason, which may well be a
    # reset connection, but of an attempt to connect.
    "failed to connect to all addresses",
    "connections to all backends failing",
    "empty address list",
    # The name did not resolve, as older and newer versions say it.
    "DNS resolution failed",
    "errors resolving ",
)
"""How the texts of gRPC begin where there was no connection to send over."""

_BY_MEMBER: Final = {
    # FAILED_PRECONDITION, but UNAVAILABLE in 3.5.
    "etcdserver: rpc not supported for learner": FailureKind.LEARNER,
    # A member that has just started refuses before it looks at the request.
    "etcdserver: not capable": FailureKind.NO_LEADER,
    "raft proposal dropped": FailureKind.DROPPED,
    "etcdserver: invalid auth token": FailureKind.UNAUTHENTICATED,
    "etcdserver: revision of auth store is old": FailureKind.UNAUTHENTICATED,
    "etcdserver: user name is empty": FailureKind.UNAUTHENTICATED,
    # The same of Maintenance up to 3.5, where they come as the store words them.
    "auth: invalid auth token": FailureKind.UNAUTHENTICATED,
    "auth: revision in header is old": FailureKind.UNAUTHENTICATED,
    "auth: user name is empty": FailureKind.UNAUTHENTICATED,
    "etcdserver: mvcc: required revision is a future revision": FailureKind.BEHIND,
    # RESOURCE_EXHAUSTED as it is declared, UNKNOWN as it arrives.
    "etcdserver: too many requests": FailureKind.OVERLOADED,
}
"""What etcd says, under whichever code. Nothing of this was executed."""

_LEADER_LOST: Final = ("etcdserver: leader changed", "etcdserver: request timed out")
"""How a member's texts begin that works itself, but had no answer from the cluster."""

_ANSWERS: Final = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "UNAUTHENTICATED",
        "RESOURCE_EXHAUSTED",  # a full database, or a message larger than gRPC may send
        "DATA_LOSS",  # the alarm that a member's data is corrupt, which the whole cluster heeds
    }
)
"""Codes that are about the request or the cluster, and not about this member."""

_BY_CALLER: Final = {
    "Locally cancelled by application!": FailureKind.CANCELLED,
    "Cancelled upon garbage collection!": FailureKind.CANCELLED,
    "Exception serializing request!": FailureKind.ANSWER,
    "Exception deserializing response!": FailureKind.ANSWER,
    "Exception iterating requests!": FailureKind.ANSWER,
}
"""What grpcio says of what its caller did; the member has no part in it."""

_BY_TEXT: Final = {**_BY_MEMBER, **_BY_CALLER}


def failure_kind(
    code: grpc.StatusCode, details: str | None, *, hasleader_sent: bool
) -> FailureKind:
    """Return what an RPC that failed with `code` and `details` says.

    Args:
        code: the status, as ``RpcError.code()`` gives it.
        details: its text; None counts as empty.
        hasleader_sent: whether the request carried the metadata ``hasleader: true``, by which a
            member that knows no leader refuses before it looks at the request. Without it the
            same text may come after a wait, and proves nothing.
    """
    text = details or ""
    known = _BY_TEXT.get(text)
    if known is not None:
        return known
    match code.name:
        case "UNAVAILABLE":
            return _unavailable(text, hasleader_sent)
        case "DEADLINE_EXCEEDED":
            return FailureKind.TIMED_OUT
        case "UNKNOWN" if text == "context deadline exceeded":
            return FailureKind.LEADER_LOST  # the server's own time limit, in 3.4 and 3.5
        case name if name in _ANSWERS:
            return FailureKind.ANSWER
        case _:
            return FailureKind.INTERRUPTED


def _unavailable(text: str, hasleader_sent: bool) -> FailureKind:
    if text.startswith(_NEVER_SENT):
        return FailureKind.UNREACHABLE
    if text == "etcdserver: no leader":
        return FailureKind.NO_LEADER if hasleader_sent else FailureKind.LEADER_LOST
    if text.startswith(_LEADER_LOST):
        return FailureKind.LEADER_LOST
    if text == "etcdserver: unhealthy cluster":
        return FailureKind.ANSWER  # a change of members that the leader declines
    return FailureKind.INTERRUPTED
