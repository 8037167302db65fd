"""Lets etcd3 be imported with today's protobuf, and beside aetcd.

etcd3 0.12.0 carries code generated for protobuf 3, which later versions refuse to run. cslab-etcd3
and python3-etcd3, which are imported as ``etcd3`` too, carry newer code; but like aetcd's it puts
files of the same names, ``kv.proto`` and so on, into protobuf's common pool, where the second one
is refused. So the messages of etcd3 are built here from the descriptions in its own files, in a
pool of their own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location
from types import ModuleType
from typing import Any, Final

_PACKAGE: Final = "etcd3.etcdrpc"
_NAMES: Final = frozenset(f"{_PACKAGE}.{name}_pb2" for name in ("kv", "auth", "rpc"))


def install() -> None:
    """Make ``import etcd3`` work with any protobuf from 5 on, in one process with aetcd.

    To be called before etcd3 is imported for the first time, since an import that fails leaves its
    files in the common pool; aetcd may be imported before or after. It changes nothing but how the
    three modules of etcd3's messages are loaded, and not even that where it is not needed: for
    newer code as long as aetcd is not installed. Calling it again does nothing, and so does calling
    it without etcd3.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the modules of etcd3's messages where the import system would, to load them anew."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _NAMES:
            return None
        usual = PathFinder.find_spec(name, path, target)
        if usual is None or not isinstance(usual.loader, InspectLoader):
            return usual
        description = _description(usual.loader.get_source(name) or "")
        if description is None or not (description.is_outdated or find_spec("aetcd")):
            return usual
        loader = _MessageLoader(description.serialized)
        return spec_from_file_location(name, usual.origin, loader=loader)


class _MessageLoader(Loader):
    """Fills a module with the messages and enums of one serialized file."""

    def __init__(self, serialized: bytes) -> None:
        self._serialized = serialized

    def exec_module(self, module: ModuleType) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
        from google.protobuf.message_factory import GetMessageClass

        file = FileDescriptorProto.FromString(self._serialized)
        for dependency in file.dependency:
            import_module(f"{_PACKAGE}.{dependency.removesuffix('.proto')}_pb2")
        pool = _pool()
        pool.Add(file)
        contents: dict[str, Any] = {"DESCRIPTOR": pool.FindFileByName(file.name)}
        for name, message in contents["DESCRIPTOR"].message_types_by_name.items():
            contents[name] = GetMessageClass(message)
            contents[name].__module__ = module.__name__
        for name, enum in contents["DESCRIPTOR"].enum_types_by_name.items():
            contents[name] = EnumTypeWrapper(enum)
            contents.update((value.name, value.number) for value in enum.values)
        vars(module).update(contents)


@cache
def _pool() -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    return DescriptorPool()


class _Description:
    """The description of a ``.proto`` in a module generated from it.

    Args:
        serialized: a ``FileDescriptorProto``.
        is_outdated: whether the module is of the kind that protobuf has refused since 4.
    """

    def __init__(self, serialized: bytes, *, is_outdated: bool) -> None:
        self.serialized = serialized
        self.is_outdated = is_outdated


def _description(source: str) -> _Description | None:
    """Return the description in a generated module, which is read and not run."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name("DESCRIPTOR")], value=ast.Call() as call):
                return _described(call)
    return None


def _described(call: ast.Call) -> _Description | None:
    for keyword in call.keywords:
        if keyword.arg == "serialized_pb":
            match keyword.value:
                case ast.Constant(bytes() as serialized):
                    return _Description(serialized, is_outdated=True)
                case ast.Call(args=[ast.Constant(str() as text)]):  # for Python 2, too
                    return _Description(text.encode("latin-1"), is_outdated=True)
    match call:
        case ast.Call(
            func=ast.Attribute(attr="AddSerializedFile"), args=[ast.Constant(bytes() as serialized)]
        ):
            return _Description(serialized, is_outdated=False)
    return None
