"""Loading the messages of etcd3 anew, with packages made for the purpose.

What the real packages make of it is in tests/integration/etcd/test_compat.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from lb_strategies_etcd.compat import _description


def described(name: str, *, after: str | None = None) -> bytes:
    """Return a description of a file ``NAME.proto``, of one message and one enum."""
    file = FileDescriptorProto(name=f"{name}.proto", package=f"{name}pb", syntax="proto3")
    message = file.message_type.add(name=f"{name.title()}Request")
    message.field.add(name="key", number=1, label=1, type=12)
    kinds = message.enum_type.add(name="Order")
    kinds.value.add(name="NONE", number=0)
    kinds.value.add(name="ASCEND", number=1)
    alarms = file.enum_type.add(name=f"{name.title()}Alarm")
    alarms.value.add(name=f"{name.upper()}_OFF", number=0)
    alarms.value.add(name=f"{name.upper()}_ON", number=1)
    if after is not None:
        file.dependency.append(f"{after}.proto")
        kind = f".{after}pb.{after.title()}Request"
        message.field.add(name="other", number=2, label=1, type=11, type_name=kind)
    return bytes(file.SerializeToString())


def outdated(serialized: bytes) -> str:
    """Return a module as it was generated when Python 2 was supported."""
    text = serialized.decode("latin-1")
    return f"DESCRIPTOR = _descriptor.FileDescriptor(name='x', serialized_pb=_b({text!r}))\n"


def newer(serialized: bytes) -> str:
    return f"DESCRIPTOR = _descriptor_pool.Default().AddSerializedFile({serialized!r})\n"


def test_descriptions_are_read_from_each_kind_of_generated_code() -> None:
    data = described("kv")
    old = _description(outdated(data))
    assert old is not None
    assert (old.serialized, old.is_outdated) == (data, True)
    later = _description(f"x = 1\nDESCRIPTOR = FileDescriptor(serialized_pb={data!r}, y=2)\n")
    assert later is not None
    assert (later.serialized, later.is_outdated) == (data, True)
    new = _description(newer(data))
    assert new is not None
    assert (new.serialized, new.is_outdated) == (data, False)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "OTHER = FileDescriptor(serialized_pb=b'x')",
        "DESCRIPTOR = 5",
        "DESCRIPTOR = FileDescriptor(name='x')",
        "DESCRIPTOR = FileDescriptor(serialized_pb=5)",
        "DESCRIPTOR = FileDescriptor(serialized_pb=_b(b'x'))",
        "DESCRIPTOR = pool.AddSerializedFile(data)",
        "DESCRIPTOR = pool.Add(b'x')",
    ],
)
def test_what_is_no_generated_code_is_left_alone(source: str) -> None:
    assert _description(source) is None


def package(place: Path, make: Callable[[bytes], str], *, second: bool = False) -> None:
    """Write an ``etcd3`` into `place`, and if `second` an ``aetcd`` with the same files."""
    for top, messages in (("etcd3", "etcdrpc"), ("aetcd", "rpc"))[: 1 + second]:
        folder = place / top / messages
        folder.mkdir(parents=True)
        (place / top / "__init__.py").touch()
        (folder / "__init__.py").touch()
        head = "from google.protobuf import descriptor_pool as _descriptor_pool\n"
        of = make if top == "etcd3" else newer
        for name, after in (("kv", None), ("auth", None), ("rpc", "kv")):
            source = head + of(described(name, after=after))
            (folder / f"{name}_pb2.py").write_text(source)


def run(place: Path, code: str) -> str:
    """Run `code` with `place` on the path, alone, and return what it printed."""
    code = f"import sys; sys.path.insert(0, {str(place)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


USE = """
from lb_strategies_etcd.compat import install
install(), install()
from etcd3.etcdrpc import rpc_pb2
from etcd3.etcdrpc.kv_pb2 import *
import pickle
request = rpc_pb2.RpcRequest(key=b"a", other=KvRequest(key=b"b"))
assert pickle.loads(pickle.dumps(request)) == request
assert rpc_pb2.RpcRequest.Order.Value("ASCEND") == rpc_pb2.RpcRequest.ASCEND == 1
assert KvAlarm.Name(1) == "KV_ON" and KV_ON == 1
assert rpc_pb2.__spec__.origin == rpc_pb2.__file__ and rpc_pb2.__file__.endswith("rpc_pb2.py")
assert sum(type(finder).__module__.startswith("lb_strategies") for finder in sys.meta_path) == 1
print(type(rpc_pb2.__loader__).__name__)
"""


def test_outdated_code_is_replaced(tmp_path: Path) -> None:
    package(tmp_path, outdated)
    assert run(tmp_path, USE) == "_MessageLoader"


@pytest.mark.parametrize("first", [True, False], ids=["aetcd first", "etcd3 first"])
def test_newer_code_is_replaced_if_something_else_has_its_names(
    tmp_path: Path, first: bool
) -> None:
    package(tmp_path, newer, second=True)
    other = "import aetcd.rpc.kv_pb2, aetcd.rpc.auth_pb2, aetcd.rpc.rpc_pb2\n"
    code = other + USE if first else USE + other
    assert run(tmp_path, code) == "_MessageLoader"


def test_newer_code_alone_and_other_modules_are_loaded_as_ever(tmp_path: Path) -> None:
    package(tmp_path, newer)
    (tmp_path / "etcd3/etcdrpc/other_pb2.py").write_text("x = 1\n")
    (tmp_path / "etcd3/etcdrpc/auth_pb2.py").write_text("y = 2\n")
    code = """
sys.modules["aetcd"] = None  # as if it were not installed
from lb_strategies_etcd.compat import install
install()
from etcd3.etcdrpc import auth_pb2, kv_pb2, other_pb2
print(type(kv_pb2.__loader__).__name__, other_pb2.x, auth_pb2.y)
"""
    assert run(tmp_path, code) == "SourceFileLoader 1 2"


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    package(tmp_path, newer)
    (tmp_path / "etcd3/etcdrpc/kv_pb2.py").unlink()
    code = """
from lb_strategies_etcd.compat import install
install()
try:
    import etcd3.etcdrpc.kv_pb2
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run(tmp_path, code) == "etcd3.etcdrpc.kv_pb2"


def test_the_package_imports_neither_grpc_nor_protobuf(tmp_path: Path) -> None:
    code = """
import lb_strategies_etcd, lb_strategies_etcd.compat
print(sorted({"grpc", "google.protobuf", "etcd3", "aetcd"} & sys.modules.keys()))
"""
    assert run(tmp_path, code) == "[]"
