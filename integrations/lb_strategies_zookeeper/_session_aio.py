"""What the client for event loops stands on: its life and state, and asking kazoo's session."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import kazoo.client
from kazoo.exceptions import ConnectionClosedError
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.security import ACL

from ._loops import LoopCallback, Waiter, in_background, in_thread, outcome_of
from .client import KazooClient

_KAZOO: Final[Any] = kazoo.client.KazooClient
"""Whose methods ask the session that writes, also where ours would ask another one."""


class AsyncSession:
    """The session of a client, asked from event loops.

    Args:
        client: whose threads do the work.
    """

    def __init__(self, client: KazooClient) -> None:
        self._sync_client = client
        self._waiters: set[Waiter] = set()

    @property
    def sync_client(self) -> KazooClient:
        """The client whose threads do the work, for recipes in ``asyncio.to_thread``."""
        return self._sync_client

    # -- life -------------------------------------------------------------------------------

    async def start(self, timeout: float = 15) -> None:
        """Connect to the leader, or to anybody if it is not known soon.

        Raises:
            KazooTimeoutError: there was no connection within `timeout` seconds.
        """
        client = self._sync_client
        changed = asyncio.Event()
        listener = LoopCallback(lambda _: changed.set())
        _KAZOO.add_listener(client, listener)
        begun = in_background(in_thread(self._start, timeout))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(begun)
                while not client.connected:
                    await changed.wait()
                    changed.clear()
        except BaseException as error:
            await asyncio.shield(in_background(self._undo(begun)))
            if isinstance(error, TimeoutError):
                raise KazooTimeoutError("Connection time-out") from None
            raise
        finally:
            _KAZOO.remove_listener(client, listener)
        if self.chroot and not await self._ask_session("exists", "/"):
            warnings.warn(
                "No chroot path exists, the chroot path should be created before normal use.",
                stacklevel=2,
            )

    async def stop(self) -> None:
        """End the session and all that was done in the background, also if cancelled."""
        await in_thread(self._stop)

    async def restart(self) -> None:
        """Stop and start."""
        await self.stop()
        await self.start()

    async def close(self) -> None:
        """Give back what a stopped client still holds."""
        await in_thread(self._sync_client.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.shield(in_background(self._end()))

    def _start(self, timeout: float) -> None:
        self._sync_client._find_leader(timeout)
        self._sync_client.start_async()

    async def _undo(self, begun: asyncio.Future[None]) -> None:
        await asyncio.wait([begun])
        await self._end()

    async def _end(self) -> None:
        await self.stop()
        await self.close()

    def _stop(self) -> None:
        try:
            self._sync_client.stop()
        finally:
            # kazoo calls nobody whose result comes while its threads end.
            for waiter in list(self._waiters):
                waiter.give_up(ConnectionClosedError("Connection has been closed"))

    # -- state ------------------------------------------------------------------------------

    def add_listener(self, listener: Callable[[KazooState], object]) -> None:
        """Have `listener` told of the state of the session that writes, in the running loop.

        It is told no more when it returns True, or when its coroutine does.
        """
        callback = LoopCallback(listener, lambda: self.remove_listener(listener))
        _KAZOO.add_listener(self._sync_client, callback)

    def remove_listener(self, listener: Callable[[KazooState], object]) -> None:
        """Tell `listener` no more in the running loop."""
        _KAZOO.remove_listener(self._sync_client, LoopCallback(listener))

    @property
    def state(self) -> KazooState:
        """LOST, SUSPENDED or CONNECTED, of the session that writes."""
        return self._sync_client.state

    @property
    def client_state(self) -> str:
        """The same in ZooKeeper's own words."""
        return str(self._sync_client.client_state)

    @property
    def connected(self) -> bool:
        """Whether the session that writes is connected."""
        return bool(self._sync_client.connected)

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """Id and password of the session that writes; None if it is not connected."""
        client_id: tuple[int, bytes] | None = self._sync_client.client_id
        return client_id

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """The servers, in the order in which the session that writes connects to them."""
        return list(self._sync_client.hosts)

    @property
    def chroot(self) -> str:
        """The path that all others are below; ``""`` if there is none."""
        return str(self._sync_client.chroot)

    @property
    def default_acl(self) -> list[ACL] | None:
        """The access list of nodes that are made without one."""
        acl: list[ACL] | None = self._sync_client.default_acl
        return acl

    def unchroot(self, path: str) -> str:
        """Return `path` without the chroot."""
        return str(self._sync_client.unchroot(path))

    # -- asking -----------------------------------------------------------------------------

    async def _ask_session(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Do kazoo's own operation of that name, on the session that writes."""
        method = getattr(_KAZOO, f"{name}_async")
        return await self._ask(partial(method, self._sync_client, *args, **kwargs))

    async def _ask(self, begin: Callable[[], AsyncResult]) -> Any:
        """Wait for what the session that writes answers to what `begin` asks."""
        result = begin()
        try:
            return await self._wait(result)
        except asyncio.CancelledError:
            if self._sync_client._routing is not None:
                self._sync_client._routing.gate.abandon(result)
            raise

    async def _wait(self, result: AsyncResult) -> Any:
        """Wait for `result`."""
        waiter = Waiter(result, self._waiters.discard)
        self._waiters.add(waiter)
        waiter.wait()
        return await outcome_of(waiter.future)
