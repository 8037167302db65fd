"""Every status that etcd and grpcio give, and what it means; texts as they were seen."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_strategies.consensus import FailureKind
from lb_strategies_etcd._errors import failure_kind

K = FailureKind
CONNECT = "failed to connect to all addresses; last error: "

SEEN = [
    # Nothing was sent.
    ("UNAVAILABLE", CONNECT + "UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: "
     "Connection refused", K.UNREACHABLE),
    ("UNAVAILABLE", CONNECT + "UNKNOWN: ipv6:%5B::1%5D:1: Failed to connect to remote host: "
     "getsockopt(SO_ERROR): No route to host", K.UNREACHABLE),
    ("UNAVAILABLE", CONNECT + "UNAVAILABLE: ipv4:127.0.0.1:1: recvmsg:Connection reset by peer "
     "(104)", K.UNREACHABLE),
    ("UNAVAILABLE", CONNECT + "UNKNOWN: ipv4:127.0.0.1:1: connection attempt timed out before "
     "receiving SETTINGS frame", K.UNREACHABLE),
    ("UNAVAILABLE", CONNECT + "INTERNAL: ipv4:127.0.0.1:1: Failed parsing HTTP/2 (Trying to "
     "connect an http1.x server (HTTP status 400))", K.UNREACHABLE),
    ("UNAVAILABLE", CONNECT + "UNKNOWN: ipv4:127.0.0.1:1: Tls handshake failed "
     "(TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL", K.UNREACHABLE),
    ("UNAVAILABLE", CONNECT + "UNAVAILABLE: ipv4:127.0.0.1:1: Handshake read failed (Endpoint "
     "closing)", K.UNREACHABLE),
    ("UNAVAILABLE", "failed to connect to all addresses", K.UNREACHABLE),
    ("UNAVAILABLE", "connections to all backends failing; last error: UNKNOWN: Connection "
     "refused", K.UNREACHABLE),
    ("UNAVAILABLE", "errors resolving no-such-host.invalid:1: [field:hostname lookup "
     "error:address lookup failed: Domain name not found]", K.UNREACHABLE),
    ("UNAVAILABLE", "DNS resolution failed for x:1: UNAVAILABLE: Domain name not found",
     K.UNREACHABLE),
    ("UNAVAILABLE", "empty address list: ", K.UNREACHABLE),
    # It may have been.
    ("UNAVAILABLE", "Stream removed (recvmsg:Connection reset by peer (104))", K.INTERRUPTED),
    ("UNAVAILABLE", "Stream removed (Socket closed)", K.INTERRUPTED),
    ("UNAVAILABLE", "Stream removed (GOAWAY received; Error code: 0; Debug Text: )",
     K.INTERRUPTED),
    ("UNAVAILABLE", "Stream removed (sendmsg: Broken pipe (32))", K.INTERRUPTED),
    ("UNAVAILABLE", "Stream removed (Transport closed (Delayed close due to in-progress write "
     "(Socket closed)))", K.INTERRUPTED),
    ("UNAVAILABLE", "Socket closed", K.INTERRUPTED),
    ("UNAVAILABLE", "recvmsg:Connection reset by peer", K.INTERRUPTED),
    ("UNAVAILABLE", "Connection reset by peer", K.INTERRUPTED),
    ("UNAVAILABLE", "Connection refused", K.INTERRUPTED),
    ("UNAVAILABLE", "ping timeout", K.INTERRUPTED),
    ("UNAVAILABLE", "GOAWAY received; Debug Text: too_many_pings", K.INTERRUPTED),
    ("UNAVAILABLE", "etcdserver: server stopped", K.INTERRUPTED),
    ("UNAVAILABLE", "the proxy failed to connect to all addresses", K.INTERRUPTED),
    ("UNAVAILABLE", "", K.INTERRUPTED),
    ("UNKNOWN", "raft: stopped", K.INTERRUPTED),
    ("UNKNOWN", "Stream removed", K.INTERRUPTED),
    ("CANCELLED", "Channel closed!", K.INTERRUPTED),
    ("CANCELLED", "context canceled", K.INTERRUPTED),
    ("CANCELLED", "etcdserver: request canceled", K.INTERRUPTED),
    ("CANCELLED", "Received RST_STREAM with error code 8", K.INTERRUPTED),
    ("INTERNAL", "Received RST_STREAM with error code 2", K.INTERRUPTED),
    ("ABORTED", "whatever", K.INTERRUPTED),
    ("CANCELLED", "Locally cancelled by application!", K.CANCELLED),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", K.TIMED_OUT),
    ("DEADLINE_EXCEEDED", "Stream removed (Deadline Exceeded)", K.TIMED_OUT),
    ("DEADLINE_EXCEEDED", "etcdserver: context deadline exceeded", K.TIMED_OUT),
    ("UNKNOWN", "context deadline exceeded", K.LEADER_LOST),
    ("UNAVAILABLE", "etcdserver: leader changed", K.LEADER_LOST),
    ("UNAVAILABLE", "etcdserver: request timed out", K.LEADER_LOST),
    ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure",
     K.LEADER_LOST),
    ("UNAVAILABLE", "etcdserver: request timed out, possibly due to connection lost",
     K.LEADER_LOST),
    ("UNAVAILABLE", "etcdserver: request timed out, waiting for the applied index took too long",
     K.LEADER_LOST),
    # Refused before anything was done.
    ("UNAVAILABLE", "etcdserver: rpc not supported for learner", K.LEARNER),
    ("FAILED_PRECONDITION", "etcdserver: rpc not supported for learner", K.LEARNER),
    ("UNAVAILABLE", "etcdserver: not capable", K.NO_LEADER),
    ("FAILED_PRECONDITION", "etcdserver: not capable", K.NO_LEADER),
    ("UNKNOWN", "raft proposal dropped", K.DROPPED),
    ("UNAUTHENTICATED", "etcdserver: invalid auth token", K.UNAUTHENTICATED),
    ("UNKNOWN", "auth: invalid auth token", K.UNAUTHENTICATED),
    ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", K.UNAUTHENTICATED),
    ("UNKNOWN", "auth: revision in header is old", K.UNAUTHENTICATED),
    ("INVALID_ARGUMENT", "etcdserver: user name is empty", K.UNAUTHENTICATED),
    ("UNKNOWN", "auth: user name is empty", K.UNAUTHENTICATED),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", K.BEHIND),
    ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", K.OVERLOADED),
    ("UNKNOWN", "etcdserver: too many requests", K.OVERLOADED),
    # The store's answers, and what the caller did.
    ("INVALID_ARGUMENT", "etcdserver: key is not provided", K.ANSWER),
    ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request", K.ANSWER),
    ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password",
     K.ANSWER),
    ("NOT_FOUND", "etcdserver: requested lease not found", K.ANSWER),
    ("FAILED_PRECONDITION", "etcdserver: lease already exists", K.ANSWER),
    ("FAILED_PRECONDITION", "etcdserver: not leader", K.ANSWER),
    ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", K.ANSWER),
    ("ALREADY_EXISTS", "", K.ANSWER),
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", K.ANSWER),
    ("OUT_OF_RANGE", "etcdserver: too large lease TTL", K.ANSWER),
    ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", K.ANSWER),
    ("RESOURCE_EXHAUSTED", "CLIENT: Sent message larger than max (102 vs. 10)", K.ANSWER),
    ("PERMISSION_DENIED", "etcdserver: permission denied", K.ANSWER),
    ("UNAUTHENTICATED", "Established channel does not have a sufficient security level to "
     "transfer call credential.", K.ANSWER),
    ("UNIMPLEMENTED", "unknown method RangeStream", K.ANSWER),
    ("DATA_LOSS", "etcdserver: corrupt cluster", K.ANSWER),
    ("UNAVAILABLE", "etcdserver: unhealthy cluster", K.ANSWER),
    ("INTERNAL", "Exception serializing request!", K.ANSWER),
    ("INTERNAL", "Exception deserializing response!", K.ANSWER),
    ("UNKNOWN", "Exception iterating requests!", K.ANSWER),
]  # fmt: skip


@pytest.mark.parametrize("hasleader_sent", [True, False])
@pytest.mark.parametrize(("code", "details", "kind"), SEEN, ids=str)
def test_each_status_that_was_seen(
    code: str, details: str, kind: FailureKind, hasleader_sent: bool
) -> None:
    found = failure_kind(grpc.StatusCode[code], details, hasleader_sent=hasleader_sent)
    assert found is kind


def test_no_leader_proves_that_nothing_was_proposed_only_if_it_was_asked_for() -> None:
    text = "etcdserver: no leader"
    code = grpc.StatusCode.UNAVAILABLE
    assert failure_kind(code, text, hasleader_sent=True) is K.NO_LEADER
    assert failure_kind(code, text, hasleader_sent=False) is K.LEADER_LOST


@pytest.mark.parametrize("code", grpc.StatusCode)
def test_without_a_text_everything_may_have_been_executed(code: grpc.StatusCode) -> None:
    assert failure_kind(code, None, hasleader_sent=True).may_have_executed


HARMLESS = [details for _, details, kind in SEEN if not kind.may_have_executed]


@given(
    st.sampled_from(list(grpc.StatusCode)),
    st.text() | st.sampled_from([d for _, d, _ in SEEN]).map(lambda d: f"proxy: {d}"),
    st.booleans(),
)
def test_a_text_that_is_not_known_never_counts_as_not_executed(
    code: grpc.StatusCode, details: str, hasleader_sent: bool
) -> None:
    if details not in HARMLESS:
        assert failure_kind(code, details, hasleader_sent=hasleader_sent).may_have_executed


@given(st.sampled_from(list(grpc.StatusCode)), st.sampled_from([d for _, d, _ in SEEN]))
def test_only_unavailable_can_mean_that_nothing_was_sent(
    code: grpc.StatusCode, details: str
) -> None:
    if failure_kind(code, details, hasleader_sent=True) is K.UNREACHABLE:
        assert code is grpc.StatusCode.UNAVAILABLE
