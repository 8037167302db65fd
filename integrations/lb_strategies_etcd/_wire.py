"""The few messages of etcd that the adapter itself sends and reads.

They are described here, by the numbers and types of etcd's ``rpc.proto``, in a descriptor pool of
their own: no generated code, and no clash with a client that registers the same names in
protobuf's common pool. What a client's own messages look like does not matter either, for
`read_header` goes by the names of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

_PACKAGE: Final = "etcdserverpb"
_SYNTAX: Final = FieldDescriptorProto
_LEADER_ID: Final = 5
"""Number of ``ResponseHeader.leader_id``, which servers send from 3.8 on."""

# Field numbers by name, for the fields that are used; a message skips what it does not know.
_UINT64: Final = _SYNTAX.TYPE_UINT64
_STRING: Final = _SYNTAX.TYPE_STRING
_BOOL: Final = _SYNTAX.TYPE_BOOL
_Type = int | str  # of a scalar, or the name of a message
_MESSAGES: Final[dict[str, dict[str, tuple[int, _Type]]]] = {
    "ResponseHeader": {
        "cluster_id": (1, _UINT64),
        "member_id": (2, _UINT64),
        "revision": (3, _SYNTAX.TYPE_INT64),
        "raft_term": (4, _UINT64),
        "leader_id": (_LEADER_ID, _UINT64),
    },
    "StatusRequest": {},
    "StatusResponse": {
        "header": (1, "ResponseHeader"),
        "version": (2, _STRING),
        "leader": (4, _UINT64),
        "raftIndex": (5, _UINT64),
        "raftTerm": (6, _UINT64),
        "errors": (8, _STRING),
        "isLearner": (10, _BOOL),
    },
    "Member": {
        "ID": (1, _UINT64),
        "name": (2, _STRING),
        "clientURLs": (4, _STRING),
        "isLearner": (5, _BOOL),
    },
    "MemberListRequest": {"linearizable": (1, _BOOL)},
    "MemberListResponse": {"header": (1, "ResponseHeader"), "members": (2, "Member")},
    "AuthenticateRequest": {"name": (1, _STRING), "password": (2, _STRING)},
    "AuthenticateResponse": {"header": (1, "ResponseHeader"), "token": (2, _STRING)},
}
_REPEATED: Final = {
    ("StatusResponse", "errors"),
    ("Member", "clientURLs"),
    ("MemberListResponse", "members"),
}


def _build() -> dict[str, Any]:
    """Return the classes of the messages, by name."""
    file = FileDescriptorProto(name="lb_strategies_etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message: DescriptorProto = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            label = (
                _SYNTAX.LABEL_REPEATED
                if (name, field_name) in _REPEATED
                else _SYNTAX.LABEL_OPTIONAL
            )
            added = message.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = _SYNTAX.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = kind
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES: Final = _build()


class Header(NamedTuple):
    """What the header of a reply says. Unknown is 0, as it is on the wire."""

    member_id: int
    """The member that answered."""
    revision: int
    """The store's revision then; 0 in replies that have nothing to do with keys."""
    raft_term: int
    leader_id: int
    """The leader in that member's view, a hint and no promise; 0 before etcd 3.8."""


def read_header(response: object) -> Header | None:
    """Return what the header of a reply says; None if it has none that is understood.

    Args:
        response: a reply of whatever client, never changed. It runs on every reply, so it looks
            at no more than the fields it returns.
    """
    try:
        header: Any = response.header  # type: ignore[attr-defined]
        return Header(header.member_id, header.revision, header.raft_term, _leader_id(header))
    except AttributeError:
        return None


_has_leader_id: Final[dict[type, bool]] = {}


def _leader_id(header: Any) -> int:
    """Return ``leader_id``, be it a field of the client's messages or unknown to them."""
    kind = type(header)
    is_field = _has_leader_id.get(kind)
    if is_field is None:
        is_field = _has_leader_id[kind] = hasattr(header, "leader_id")
    if is_field:
        return int(header.leader_id)
    try:
        unknown = UnknownFieldSet(header)
    except (AttributeError, TypeError):
        return 0  # no message of protobuf's
    hint = 0
    for found in unknown:
        if found.field_number == _LEADER_ID and isinstance(found.data, int):
            hint = found.data  # the last one counts
    return hint


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Asks one member about itself."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member says of itself.

    Args:
        header: of the reply.
        cluster_id: of the cluster that the member belongs to.
        version: of the server.
        leader_id: the leader in the member's view; 0 if it knows none.
        raft_term: of that view.
        is_learner: whether it has no vote, and so serves local reads only.
        errors: alarms, and that there is no leader, in the server's words.
    """

    header: Header
    cluster_id: int
    version: str
    leader_id: int
    raft_term: int
    is_learner: bool
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemberListRequest:
    """Asks for the members; linearizable as etcd's own client does since 3.5."""

    linearizable: bool = True


@dataclass(frozen=True, slots=True)
class Member:
    """A member as the cluster knows it; one that never started has no name and no URLs."""

    member_id: int
    name: str
    client_urls: tuple[str, ...]
    is_learner: bool


@dataclass(frozen=True, slots=True)
class MemberList:
    """The members of the cluster."""

    header: Header
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class AuthenticateRequest:
    """Asks for a token; its representation shows no password."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authentication:
    """A token, which its representation does not show."""

    header: Header
    token: str = field(repr=False)


_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class Rpc(Generic[_Request, _Response]):
    """A unary RPC, as a channel's ``unary_unary`` takes it.

    Args:
        path: of the method.
        serialize: turns the request into bytes.
        parse: turns bytes into the response; ``DecodeError`` if they are none.
    """

    path: str
    serialize: Callable[[_Request], bytes]
    parse: Callable[[bytes], _Response]


def _bytes(message_name: str, /, **fields: object) -> bytes:
    message: bytes = _CLASSES[message_name](**fields).SerializeToString()
    return message


def _parse_status(data: bytes) -> MemberStatus:
    status = _CLASSES["StatusResponse"].FromString(data)
    return MemberStatus(
        header=_header(status),
        cluster_id=status.header.cluster_id,
        version=status.version,
        leader_id=status.leader,
        raft_term=status.raftTerm,
        is_learner=status.isLearner,
        errors=tuple(status.errors),
    )


def _parse_members(data: bytes) -> MemberList:
    listed = _CLASSES["MemberListResponse"].FromString(data)
    return MemberList(
        header=_header(listed),
        members=tuple(
            Member(member.ID, member.name, tuple(member.clientURLs), member.isLearner)
            for member in listed.members
        ),
    )


def _parse_authentication(data: bytes) -> Authentication:
    answer = _CLASSES["AuthenticateResponse"].FromString(data)
    return Authentication(_header(answer), answer.token)


def _header(response: Any) -> Header:
    found = response.header
    return Header(found.member_id, found.revision, found.raft_term, found.leader_id)


STATUS: Final[Rpc[StatusRequest, MemberStatus]] = Rpc(
    "/etcdserverpb.Maintenance/Status",
    lambda request: _bytes("StatusRequest"),
    _parse_status,
)
MEMBER_LIST: Final[Rpc[MemberListRequest, MemberList]] = Rpc(
    "/etcdserverpb.Cluster/MemberList",
    lambda request: _bytes("MemberListRequest", linearizable=request.linearizable),
    _parse_members,
)
AUTHENTICATE: Final[Rpc[AuthenticateRequest, Authentication]] = Rpc(
    "/etcdserverpb.Auth/Authenticate",
    lambda request: _bytes("AuthenticateRequest", name=request.name, password=request.password),
    _parse_authentication,
)
