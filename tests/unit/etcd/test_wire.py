"""The adapter's own messages, byte for byte, and the headers of everybody's replies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from lb_strategies_etcd._wire import (
    AUTHENTICATE,
    MEMBER_LIST,
    STATUS,
    AuthenticateRequest,
    Authentication,
    Header,
    Member,
    MemberList,
    MemberListRequest,
    MemberStatus,
    StatusRequest,
    read_header,
)

UINT64 = st.integers(0, 2**64 - 1)


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def header(member_id: int, revision: int, raft_term: int, *more: bytes) -> bytes:
    fields = (number(1, 77), number(2, member_id), number(3, revision), number(4, raft_term))
    return part(1, b"".join((*fields, *more)))


def client_class(*, knows_leader_id: bool) -> Any:
    """Return the class of a reply as a client's generated code has it, old or new."""
    file = FileDescriptorProto(name="rpc.proto", package="etcdserverpb", syntax="proto3")
    head = file.message_type.add(name="ResponseHeader")
    names = ["cluster_id", "member_id", "revision", "raft_term"] + ["leader_id"] * knows_leader_id
    for index, name in enumerate(names, start=1):
        kind = FieldDescriptorProto.TYPE_INT64 if index == 3 else FieldDescriptorProto.TYPE_UINT64
        head.field.add(name=name, number=index, label=1, type=kind)
    reply = file.message_type.add(name="PutResponse")
    reply.field.add(
        name="header", number=1, label=1, type=11, type_name=".etcdserverpb.ResponseHeader"
    )
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("etcdserverpb.PutResponse"))


REPLIES = [
    pytest.param(client_class(knows_leader_id=False), id="unknown-field"),
    pytest.param(client_class(knows_leader_id=True), id="field"),
]


@pytest.mark.parametrize("reply", REPLIES)
@given(UINT64, st.integers(-1, 2**63 - 1), UINT64, UINT64)
def test_a_header_is_read_whether_or_not_the_client_knows_its_last_field(
    reply: Any, member_id: int, revision: int, raft_term: int, leader_id: int
) -> None:
    data = header(member_id, revision, raft_term, number(5, leader_id), number(9, 3))
    expected = Header(member_id, revision, raft_term, leader_id)
    assert read_header(reply.FromString(data)) == expected


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize(
    ("more", "leader_id"),
    [
        ((), 0),
        ((number(5, 0),), 0),
        ((number(6, 8),), 0),
        ((number(5, 8), number(5, 9)), 9),
        ((part(5, b"other"),), 0),
    ],
    ids=str,
)
def test_no_leader_id_is_no_hint(reply: Any, more: tuple[bytes, ...], leader_id: int) -> None:
    assert read_header(reply.FromString(header(1, 2, 3, *more))) == Header(1, 2, 3, leader_id)


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_without_its_header_says_nothing(reply: Any) -> None:
    found = reply()
    assert read_header(found) == Header(0, 0, 0, 0)
    assert not found.HasField("header")


@pytest.mark.parametrize(
    "reply",
    [None, b"bytes", object(), SimpleNamespace(header=None)],
    ids=["None", "bytes", "object", "namespace"],
)
def test_what_has_no_header_of_etcd_has_none(reply: object) -> None:
    assert read_header(reply) is None


def test_a_message_of_another_make_will_do() -> None:
    old = SimpleNamespace(member_id=1, revision=2, raft_term=3)
    assert read_header(SimpleNamespace(header=old)) == Header(1, 2, 3, 0)
    new = type("New", (), {"member_id": 1, "revision": 2, "raft_term": 3, "leader_id": 4})()
    assert read_header(SimpleNamespace(header=new)) == Header(1, 2, 3, 4)


def test_status() -> None:
    assert STATUS.path == "/etcdserverpb.Maintenance/Status"
    assert STATUS.serialize(StatusRequest()) == b""
    data = header(5, 6, 7, number(5, 8)) + b"".join(
        (
            part(2, b"3.5.1"),
            number(3, 20_480),
            number(4, 9),
            number(5, 100),
            number(6, 11),
            part(8, b"etcdserver: no leader"),
            number(10, 1),
            part(11, b"3.6.0"),
        )
    )
    status = STATUS.parse(data)
    assert status == MemberStatus(
        header=Header(5, 6, 7, 8),
        cluster_id=77,
        version="3.5.1",
        leader_id=9,
        raft_term=11,
        is_learner=True,
        errors=("etcdserver: no leader",),
    )
    assert read_header(status) == status.header
    assert STATUS.parse(b"") == MemberStatus(Header(0, 0, 0, 0), 0, "", 0, 0, False, ())


@pytest.mark.parametrize(("linearizable", "data"), [(True, number(1, 1)), (False, b"")])
def test_members(linearizable: bool, data: bytes) -> None:
    assert MEMBER_LIST.path == "/etcdserverpb.Cluster/MemberList"
    assert MEMBER_LIST.serialize(MemberListRequest(linearizable)) == data
    a = b"".join((number(1, 2**64 - 1), part(2, b"a"), part(3, b"http://p"), part(4, b"http://c")))
    b = number(1, 4) + part(4, b"http://d") + part(4, b"http://e") + number(5, 1)
    listed = MEMBER_LIST.parse(header(1, 0, 3) + part(2, a) + part(2, b))
    assert listed == MemberList(
        Header(1, 0, 3, 0),
        (
            Member(2**64 - 1, "a", ("http://c",), is_learner=False),
            Member(4, "", ("http://d", "http://e"), is_learner=True),
        ),
    )


def test_a_member_list_is_asked_for_as_a_linearizable_read() -> None:
    assert MemberListRequest().linearizable


def test_authentication_shows_neither_password_nor_token() -> None:
    assert AUTHENTICATE.path == "/etcdserverpb.Auth/Authenticate"
    request = AuthenticateRequest("root", "s3cret")
    assert AUTHENTICATE.serialize(request) == part(1, b"root") + part(2, b"s3cret")
    answer = AUTHENTICATE.parse(header(1, 2, 3) + part(2, b"t0ken.7"))
    assert answer == Authentication(Header(1, 2, 3, 0), "t0ken.7")
    assert "s3cret" not in f"{request!r} {request}"
    assert "t0ken" not in f"{answer!r} {answer}"


@pytest.mark.parametrize("rpc", [STATUS, MEMBER_LIST, AUTHENTICATE], ids=lambda rpc: rpc.path)
def test_what_is_no_message_is_an_error(rpc: Any) -> None:
    with pytest.raises(DecodeError):
        rpc.parse(b"\xff\xff")


def test_nothing_is_registered_where_a_client_registers() -> None:
    with pytest.raises(KeyError):
        Default().FindFileByName("lb_strategies_etcd.proto")
