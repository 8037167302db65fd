"""A view of a client: the same sessions, with reads of another freshness."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kazoo.handlers.threading import AsyncResult
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from ._reads import EXISTS, GET, GET_ACLS, Method, Read, children_method

if TYPE_CHECKING:
    from .client import KazooClient


class KazooView:
    """Reads as its options say; all else is the client's. `KazooClient.with_options` makes it.

    Args:
        client: whose view it is.
        begin: returns a read to be done, or None for one that is kazoo's own.
    """

    def __init__(self, client: KazooClient, begin: Callable[[Method, str], Read | None]) -> None:
        self._client = client
        self._begin = begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Return the value and the stat of a node."""
        read = self._begin(GET, path)
        value: tuple[bytes, ZnodeStat] = self._client.get(path) if read is None else read.fetch()
        return value

    def get_async(self, path: str) -> AsyncResult:
        """As `get`; return the result at once."""
        read = self._begin(GET, path)
        return self._client.get_async(path) if read is None else read.fetch_async()

    def exists(self, path: str) -> ZnodeStat | None:
        """Return the stat of a node; None if it does not exist."""
        read = self._begin(EXISTS, path)
        return self._client.exists(path) if read is None else read.fetch()

    def exists_async(self, path: str) -> AsyncResult:
        """As `exists`; return the result at once."""
        read = self._begin(EXISTS, path)
        return self._client.exists_async(path) if read is None else read.fetch_async()

    def get_children(
        self, path: str, *, include_data: bool = False
    ) -> list[str] | tuple[list[str], ZnodeStat]:
        """Return the names of a node's children, with the node's stat if that is wanted."""
        read = self._begin(children_method(include_data), path)
        if read is None:
            return self._client.get_children(path, include_data=include_data)
        value: list[str] | tuple[list[str], ZnodeStat] = read.fetch()
        return value

    def get_children_async(self, path: str, *, include_data: bool = False) -> AsyncResult:
        """As `get_children`; return the result at once."""
        read = self._begin(children_method(include_data), path)
        if read is None:
            return self._client.get_children_async(path, include_data=include_data)
        return read.fetch_async()

    def get_acls(self, path: str) -> tuple[list[ACL], ZnodeStat]:
        """Return the access list and the stat of a node."""
        read = self._begin(GET_ACLS, path)
        value: tuple[list[ACL], ZnodeStat]
        value = self._client.get_acls(path) if read is None else read.fetch()
        return value

    def get_acls_async(self, path: str) -> AsyncResult:
        """As `get_acls`; return the result at once."""
        read = self._begin(GET_ACLS, path)
        return self._client.get_acls_async(path) if read is None else read.fetch_async()
