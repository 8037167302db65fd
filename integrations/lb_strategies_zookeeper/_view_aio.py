"""A view of a client for event loops: the same sessions, with reads of another freshness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from ._view import KazooView

if TYPE_CHECKING:
    from .aio import AsyncKazooClient


class AsyncKazooView:
    """Reads as its options say; all else is the client's. `AsyncKazooClient.with_options` makes it.

    Args:
        client: whose view it is.
        view: of the client for threads.
    """

    def __init__(self, client: AsyncKazooClient, view: KazooView) -> None:
        self._client = client
        self._view = view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Return the value and the stat of a node."""
        value: tuple[bytes, ZnodeStat] = await self._client._wait(self._view.get_async(path))
        return value

    async def exists(self, path: str) -> ZnodeStat | None:
        """Return the stat of a node; None if it does not exist."""
        return await self._client._wait(self._view.exists_async(path))

    async def get_children(
        self, path: str, *, include_data: bool = False
    ) -> list[str] | tuple[list[str], ZnodeStat]:
        """Return the names of a node's children, with the node's stat if that is wanted."""
        children: list[str] | tuple[list[str], ZnodeStat] = await self._client._wait(
            self._view.get_children_async(path, include_data=include_data)
        )
        return children

    async def get_acls(self, path: str) -> tuple[list[ACL], ZnodeStat]:
        """Return the access list and the stat of a node."""
        value: tuple[list[ACL], ZnodeStat] = await self._client._wait(
            self._view.get_acls_async(path)
        )
        return value
