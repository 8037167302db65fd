"""ZooKeeper's lock recipe, awaitable, with the nodes that kazoo's locks have.

Each contender makes a node with a number; who has the lowest one holds the lock, and everybody
else watches the one before (the recipe of ZooKeeper's documentation). Everything is asked of the
session that writes, in whose order the recipe reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Self

from kazoo.exceptions import CancelledError, KazooException, LockTimeout, NoNodeError
from kazoo.retry import ForceRetryError, KazooRetry

from ._loops import LoopCallback, in_background
from ._retry_aio import retry

if TYPE_CHECKING:
    from .aio import AsyncKazooClient

_CLEAN_UP: Final = 30.0
"""Seconds for which an attempt that was given up is cleaned up after; then it is the session's
end that removes the node."""


class AsyncLock:
    """An exclusive lock, as kazoo's ``Lock``, that contends with those of kazoo's clients too.

    It is not re-entrant, and belongs to one event loop::

        async with client.Lock("/path", "my-identifier"):
            ...

    Whoever acquires it and may lose the session (state LOST) has lost the lock then.

    Args:
        client: on whose session the lock is held.
        path: of the lock; it is made if it does not exist.
        identifier: what `contenders` calls this one.
        extra_lock_patterns: of other nodes that contend, as regular expressions.
    """

    _NODE_NAME: ClassVar[str] = "__lock__"
    _EXCLUDE_NAMES: ClassVar[tuple[str, ...]] = ("__lock__",)

    def __init__(
        self,
        client: AsyncKazooClient,
        path: str,
        identifier: str | None = None,
        extra_lock_patterns: tuple[str, ...] = (),
    ) -> None:
        self.client = client
        self.path = path
        self.data = str(identifier or "").encode()
        self.is_acquired = False
        # Whether a node was made is not known if the connection breaks. The name then tells.
        self._prefix = uuid.uuid4().hex + self._NODE_NAME
        self._excluded = _numbered(*self._EXCLUDE_NAMES, *extra_lock_patterns)
        self._contending = _numbered(*self._EXCLUDE_NAMES, *extra_lock_patterns, self._NODE_NAME)
        self._node: str | None = None
        self._has_tried = False
        self._has_path = False
        self._is_cancelled = False
        self._wake = asyncio.Event()
        self._local = asyncio.Lock()
        """Held while this object has, or may have, a node: one task at a time contends with it."""

    async def acquire(
        self, blocking: bool = True, timeout: float | None = None, ephemeral: bool = True
    ) -> bool:
        """Acquire the lock; a task that is cancelled meanwhile leaves no contender behind.

        Args:
            blocking: whether to wait for it; if not, False is returned if somebody else has it.
            timeout: seconds to wait at most; None for ever.
            ephemeral: whether it is released by the end of the session.

        Raises:
            LockTimeout: `timeout` has passed.
            kazoo.exceptions.CancelledError: `cancel` was called.
            KazooException: the servers refuse, or the client was stopped.
        """
        if not blocking and self._local.locked():
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._local.acquire()
                await self._acquire(blocking, ephemeral)
        except TimeoutError:
            message = f"Failed to acquire lock on {self.path} after {timeout} seconds"
            raise LockTimeout(message) from None
        return self.is_acquired

    async def release(self) -> bool:
        """Release the lock, however long that takes; False if it is not held.

        A connection that breaks meanwhile does not end it, nor that the task is cancelled.
        """
        if not self.is_acquired:
            return False
        self.is_acquired = False
        await asyncio.shield(in_background(self._remove(_for_ever())))
        return True

    def cancel(self) -> None:
        """Have the task that waits in `acquire` give up."""
        self._is_cancelled = True
        self._wake.set()

    async def contenders(self) -> list[str]:
        """Return the identifiers of those who contend, the holder first."""
        await self._ensure_path()
        found: list[str] = []
        for _, node in sorted(_select(self._contending, await self._children())):
            with contextlib.suppress(NoNodeError):  # it has gone since
                data, _ = await self.client._ask_session("get", f"{self.path}/{node}")
                found.append(data.decode())
        return found

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.release()

    # -- the recipe ---------------------------------------------------------------------------

    async def _acquire(self, blocking: bool, ephemeral: bool) -> None:
        """Contend, with `_local` held, which is given back together with the node."""
        try:
            self.is_acquired = await retry(_for_ever(), self._contend, blocking, ephemeral)
        except asyncio.CancelledError:
            in_background(self._give_up())  # not waited for: who is cancelled has no time
            raise
        except BaseException:
            await asyncio.shield(in_background(self._give_up()))
            raise
        finally:
            self._is_cancelled = False
        if not self.is_acquired:
            await asyncio.shield(in_background(self._give_up()))

    async def _contend(self, blocking: bool, ephemeral: bool) -> bool:
        self._node = None
        await self._ensure_path()
        node = self._node = await self._find() or await self._make(ephemeral)
        while True:
            self._wake.clear()
            if self._is_cancelled:
                raise CancelledError()
            predecessor = await self._predecessor(node)
            if predecessor is None:
                return True
            if not blocking:
                return False
            await self._wait_for(predecessor)

    async def _predecessor(self, node: str) -> str | None:
        """Return who is next before `node` and keeps it waiting; None if nobody does.

        Raises:
            ForceRetryError: there is no `node`: it went with the session before.
        """
        children = await self._children()
        if node not in children:
            raise ForceRetryError()
        number = int(node[len(self._prefix) :])
        before = [found for found in _select(self._excluded, children) if found[0] < number]
        return max(before)[1] if before else None

    async def _wait_for(self, predecessor: str) -> None:
        """Wait until the node of `predecessor` changes, or the connection does."""
        self.client.add_listener(self._changed)
        try:
            # Not `exists`, which would leave a watch on a node that never comes back.
            watch = LoopCallback(self._changed)
            await self.client._ask_session("get", f"{self.path}/{predecessor}", watch)
            await self._wake.wait()
        except NoNodeError:
            pass
        finally:
            self.client.remove_listener(self._changed)

    def _changed(self, _: object) -> None:
        self._wake.set()

    async def _find(self) -> str | None:
        """Return the node that an earlier attempt has made, if any."""
        if not self._has_tried:
            return None
        return next((c for c in await self._children() if c.startswith(self._prefix)), None)

    async def _make(self, ephemeral: bool) -> str:
        self._has_tried = True
        path: str = await self.client._ask_session(
            "create", f"{self.path}/{self._prefix}", self.data, ephemeral=ephemeral, sequence=True
        )
        return path.rpartition("/")[2]

    async def _children(self) -> list[str]:
        children: list[str] = await self.client._ask_session("get_children", self.path)
        return children

    async def _ensure_path(self) -> None:
        if not self._has_path:
            await self.client.ensure_path(self.path)
            self._has_path = True

    async def _give_up(self) -> None:
        """Remove what an attempt has left, if that can be done."""
        with contextlib.suppress(KazooException):
            await self._remove(KazooRetry(max_tries=-1, max_delay=1.0, deadline=_CLEAN_UP))

    async def _remove(self, rules: KazooRetry) -> None:
        """Delete the node and give back `_local`."""
        try:
            await retry(rules, self._delete)
        finally:
            self._local.release()

    async def _delete(self) -> None:
        # A request to create it may still be on its way; `_find` is answered after that one.
        node = self._node or await self._find()
        if node is not None:
            with contextlib.suppress(NoNodeError):
                await self.client._ask_session("delete", f"{self.path}/{node}")
        self._node = None


class AsyncWriteLock(AsyncLock):
    """The side of a shared lock that excludes everybody; see `AsyncLock`."""

    _EXCLUDE_NAMES = ("__lock__", "__rlock__")


class AsyncReadLock(AsyncLock):
    """The side of a shared lock that excludes only those who write; see `AsyncLock`."""

    _NODE_NAME = "__rlock__"


def _numbered(*names: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{'|'.join(names)})(-?\d{{10}})$")


def _select(pattern: re.Pattern[str], nodes: list[str]) -> list[tuple[int, str]]:
    """Return those that match, with their numbers."""
    matches = [(pattern.search(node), node) for node in nodes]
    return [(int(match[1]), node) for match, node in matches if match]


def _for_ever() -> KazooRetry:
    return KazooRetry(max_tries=-1, max_delay=1.0)
