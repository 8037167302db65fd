"""The two requests of the benchmark and their replies, the same for every contender.

They are described here, by the numbers and types of etcd's ``rpc.proto``, in a descriptor pool of
their own, so that no client's generated code is needed and none is favoured.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PUT: Final = "/etcdserverpb.KV/Put"
RANGE: Final = "/etcdserverpb.KV/Range"

_PACKAGE: Final = "etcdserverpb"
_BYTES: Final = FieldDescriptorProto.TYPE_BYTES
_BOOL: Final = FieldDescriptorProto.TYPE_BOOL
_INT64: Final = FieldDescriptorProto.TYPE_INT64
_UINT64: Final = FieldDescriptorProto.TYPE_UINT64

# Number and type of each field; a string names a message, a list of one a repeated message.
_FIELDS: Final[dict[str, dict[str, tuple[int, int | str | list[str]]]]] = {
    "ResponseHeader": {
        "cluster_id": (1, _UINT64),
        "member_id": (2, _UINT64),
        "revision": (3, _INT64),
        "raft_term": (4, _UINT64),
    },
    "KeyValue": {"key": (1, _BYTES), "value": (5, _BYTES)},
    "PutRequest": {"key": (1, _BYTES), "value": (2, _BYTES), "lease": (3, _INT64)},
    "PutResponse": {"header": (1, "ResponseHeader")},
    "RangeRequest": {
        "key": (1, _BYTES),
        "range_end": (2, _BYTES),
        "limit": (3, _INT64),
        "serializable": (7, _BOOL),
        "keys_only": (8, _BOOL),
        "count_only": (9, _BOOL),
    },
    "RangeResponse": {
        "header": (1, "ResponseHeader"),
        "kvs": (2, ["KeyValue"]),
        "count": (4, _INT64),
    },
}


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="bench_etcd.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            field = message.field.add(name=field_name, number=number)
            is_repeated = isinstance(kind, list)
            field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            if isinstance(kind, int):
                field.type = kind
            else:
                field.type = field.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind[0] if isinstance(kind, list) else kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _FIELDS
    }


_CLASSES: Final = _classes()
PutRequest: Final[Any] = _CLASSES["PutRequest"]
PutResponse: Final[Any] = _CLASSES["PutResponse"]
RangeRequest: Final[Any] = _CLASSES["RangeRequest"]
RangeResponse: Final[Any] = _CLASSES["RangeResponse"]
