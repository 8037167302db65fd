"""The messages of etcd's watches as generated code has them: today's, and those from before 3.4.

They live in pools of their own, for the unit tests need no client.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "etcdserverpb"
_TYPES = {
    "int64": FieldDescriptorProto.TYPE_INT64,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
}
_OLD = {
    "ResponseHeader": "revision:int64=3",
    "KeyValue": "key:bytes=1 create_revision:int64=2 mod_revision:int64=3 value:bytes=5",
    "Event": "kv:KeyValue=2",
    "WatchCreateRequest": "key:bytes=1 range_end:bytes=2 start_revision:int64=3"
    " progress_notify:bool=4 prev_kv:bool=6",
    "WatchCancelRequest": "watch_id:int64=1",
    "WatchProgressRequest": "",
    "WatchRequest": "create_request:WatchCreateRequest=1! cancel_request:WatchCancelRequest=2!",
    "WatchResponse": "header:ResponseHeader=1 watch_id:int64=2 created:bool=3 canceled:bool=4"
    " compact_revision:int64=5 cancel_reason:string=6 events:Event=11*",
}
"""Fields as name, type and number; ``!`` for those of the union, ``*`` for repeated ones."""
_ADDED = {
    "WatchCreateRequest": " watch_id:int64=7 fragment:bool=8",
    "WatchRequest": " progress_request:WatchProgressRequest=3!",
    "WatchResponse": " fragment:bool=7",
}


class Messages:
    """The classes of one vintage.

    Args:
        are_old: whether they are from before 3.4.
    """

    def __init__(self, *, are_old: bool = False) -> None:
        file = FileDescriptorProto(name="rpc.proto", package=_PACKAGE, syntax="proto3")
        for name, fields in _OLD.items():
            added = "" if are_old else _ADDED.get(name, "")
            _add(file.message_type.add(name=name), fields + added)
        pool = DescriptorPool()
        pool.Add(file)
        self._classes = {
            name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _OLD
        }
        self.Request: Any = self._classes["WatchRequest"]
        self.Response: Any = self._classes["WatchResponse"]

    def create(self, key: bytes = b"k", **fields: Any) -> Any:
        return self.Request(create_request={"key": key, **fields})

    def cancel(self, watch_id: int) -> Any:
        return self.Request(cancel_request={"watch_id": watch_id})

    def progress(self) -> Any:
        return self.Request(progress_request={})

    def created(self, watch_id: int, revision: int, **fields: Any) -> Any:
        return self.response(watch_id, revision, created=True, **fields)

    def response(
        self, watch_id: int, revision: int, *events: tuple[int, bytes], **fields: Any
    ) -> Any:
        """Return a response with `events`, which are revisions and keys."""
        return self.Response(
            header={"revision": revision},
            watch_id=watch_id,
            events=[{"kv": {"mod_revision": event[0], "key": event[1]}} for event in events],
            **fields,
        )


def _add(message: DescriptorProto, fields: str) -> None:
    for field in fields.split():
        name, _, rest = field.partition(":")
        kind, _, number = rest.partition("=")
        added = message.field.add(name=name, number=int(number.rstrip("!*")))
        added.label = added.LABEL_REPEATED if field.endswith("*") else added.LABEL_OPTIONAL
        if kind in _TYPES:
            added.type = _TYPES[kind]
        else:
            added.type, added.type_name = added.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
        if field.endswith("!"):
            if not message.oneof_decl:
                message.oneof_decl.add(name="request_union")
            added.oneof_index = 0


def events_of(response: Any) -> list[tuple[int, bytes]]:
    return [(event.kv.mod_revision, event.kv.key) for event in response.events]
