"""The client for event loops: kazoo's threads do the work, and the loop is told of it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, ParamSpec, TypeVar, overload

from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from lb_strategies import (
    ConsensusOptions,
    EndpointStats,
    LoadBalancer,
    LoadBalancingStrategy,
    Policy,
    ReadConsistency,
)
from lb_strategies.membership import Endpoint

from ._locks_aio import AsyncLock, AsyncReadLock, AsyncWriteLock
from ._loops import LoopCallback, in_thread
from ._retry_aio import retry
from ._session_aio import AsyncSession
from ._transactions_aio import AsyncTransactionRequest
from ._view_aio import AsyncKazooView
from .client import KazooClient, Watch

_P = ParamSpec("_P")
_R = TypeVar("_R")


class AsyncKazooClient(AsyncSession):
    """`KazooClient` for asyncio: the same methods, to be awaited.

    Each method waits in the event loop that calls it, and watches and listeners are called in the
    loop that gave them; so one client may serve several loops. They may be plain functions or
    coroutine functions. A task that is cancelled waits no longer, but what it has asked for may
    be done all the same; reads that follow are answered after it.

    Not here are kazoo's ``*_async`` methods, which nobody needs who can await, and its recipes
    other than locks: they wait in threads, so use those of `sync_client` in
    ``asyncio.to_thread``.

    Args:
        hosts: all servers of the ensemble, as for kazoo, with the chroot if there is one.
        timeout: of the session, in seconds, as for kazoo.
        strategy: how reads are spread, and whether the session is kept at the leader; with None
            everything is kazoo's own.
        options: tunables of the routing; the defaults if None.
        read_consistency: how fresh reads must be.
        fence: whether a STRONG read is preceded by a write that changes nothing, which makes it
            linearizable also while a deposed leader does not know that it is.
        admin_port: of the servers' AdminServers, which are asked who leads instead of the servers
            themselves, where ``srvr`` is not allowed; None to ask none.
        rng: source of randomness; a new one if None.
        **kwargs: all else that kazoo's client takes.

    Raises:
        UnsupportedClientError: this version of kazoo is not supported.
        ValueError: the strategy or another value is out of range.
        TypeError: an argument is of another type, such as a handler that is not for threads.
    """

    def __init__(
        self,
        hosts: str | list[str] = "127.0.0.1:2181",
        timeout: float = 10.0,
        *,
        strategy: LoadBalancingStrategy | Policy | str | None = LoadBalancingStrategy.HYBRID,
        options: ConsensusOptions | None = None,
        read_consistency: ReadConsistency | str = ReadConsistency.CAUSAL,
        fence: bool = False,
        admin_port: int | None = None,
        rng: random.Random | None = None,
        **kwargs: Any,
    ) -> None:
        client = KazooClient(
            hosts,
            timeout,
            strategy=strategy,
            options=options,
            read_consistency=read_consistency,
            fence=fence,
            admin_port=admin_port,
            rng=rng,
            **kwargs,
        )
        super().__init__(client)

    # -- reads ------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:
        """Return data and stat of a node."""
        value: tuple[bytes, ZnodeStat] = await self._read("get", path, _in_loop(watch))
        return value

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        """Return the stat of a node; None if there is none."""
        stat: ZnodeStat | None = await self._read("exists", path, _in_loop(watch))
        return stat

    @overload
    async def get_children(
        self, path: str, watch: Watch | None = None, include_data: Literal[False] = False
    ) -> list[str]: ...
    @overload
    async def get_children(
        self, path: str, watch: Watch | None = None, *, include_data: Literal[True]
    ) -> tuple[list[str], ZnodeStat]: ...
    @overload
    async def get_children(
        self, path: str, watch: Watch | None, include_data: bool
    ) -> list[str] | tuple[list[str], ZnodeStat]: ...
    async def get_children(
        self, path: str, watch: Watch | None = None, include_data: bool = False
    ) -> list[str] | tuple[list[str], ZnodeStat]:
        """Return the names of a node's children, with its stat if `include_data`."""
        children: list[str] | tuple[list[str], ZnodeStat] = await self._read(
            "get_children", path, _in_loop(watch), include_data
        )
        return children

    async def get_acls(self, path: str) -> tuple[list[ACL], ZnodeStat]:
        """Return access list and stat of a node."""
        value: tuple[list[ACL], ZnodeStat] = await self._read("get_acls", path)
        return value

    def with_options(self, *, read_consistency: ReadConsistency | str) -> AsyncKazooView:
        """Return a view of this client whose reads are as fresh as said; it costs nothing."""
        view = self._sync_client.with_options(read_consistency=read_consistency)
        return AsyncKazooView(self, view)

    async def sync(self, path: str) -> str:
        """Have the server of the session that writes catch up with the leader; return `path`."""
        return str(await self._ask_session("sync", path))

    # -- writes -----------------------------------------------------------------------------

    @overload
    async def create(
        self,
        path: str,
        value: bytes = b"",
        acl: list[ACL] | None = None,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
        include_data: Literal[False] = False,
    ) -> str: ...
    @overload
    async def create(
        self,
        path: str,
        value: bytes = b"",
        acl: list[ACL] | None = None,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
        *,
        include_data: Literal[True],
    ) -> tuple[str, ZnodeStat]: ...
    async def create(
        self,
        path: str,
        value: bytes = b"",
        acl: list[ACL] | None = None,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
        include_data: bool = False,
    ) -> str | tuple[str, ZnodeStat]:
        """Make a node; return its path, with its stat if `include_data`."""
        created: str | tuple[str, ZnodeStat] = await self._ask_session(
            "create", path, value, acl, ephemeral, sequence, makepath, include_data
        )
        return created

    async def ensure_path(self, path: str, acl: list[ACL] | None = None) -> str | bool:
        """Make a node and those above it, unless there are; True if there was one."""
        made: str | bool = await self._ask_session("ensure_path", path, acl)
        return made

    async def set(self, path: str, value: bytes, version: int = -1) -> ZnodeStat:
        """Change the data of a node, if it is at `version`; return its stat."""
        return await self._ask_session("set", path, value, version)

    async def set_acls(self, path: str, acls: list[ACL], version: int = -1) -> ZnodeStat:
        """Change the access list of a node, if that is at `version`; return its stat."""
        return await self._ask_session("set_acls", path, acls, version)

    async def delete(self, path: str, version: int = -1, recursive: bool = False) -> bool:
        """Delete a node, if it is at `version`, or with all that is below it; return True."""
        if not isinstance(recursive, bool):
            raise TypeError("Invalid type for 'recursive' (bool expected)")
        if not recursive:
            return bool(await self._ask_session("delete", path, version))
        try:
            for child in await self._ask_session("get_children", path):
                await self.delete(f"{path.rstrip('/')}/{child}", recursive=True)
            await self._ask_session("delete", path)
        except NoNodeError:
            pass  # somebody else deletes it, too
        return True

    def transaction(self) -> AsyncTransactionRequest:
        """Return a transaction, to be filled and committed."""
        return AsyncTransactionRequest(self._sync_client, self._ask)

    async def reconfig(
        self,
        joining: str | None,
        leaving: str | None,
        new_members: str | None,
        from_config: int = -1,
    ) -> tuple[bytes, ZnodeStat]:
        """Change the members of the ensemble; return its configuration and the stat of that."""
        value: tuple[bytes, ZnodeStat] = await self._ask_session(
            "reconfig", joining, leaving, new_members, from_config
        )
        return value

    async def retry(
        self, func: Callable[_P, Awaitable[_R]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        """Await ``func(*args, **kwargs)`` as often as `command_retry` says.

        Raises:
            RetryFailedError: it failed that often.
        """
        return await retry(self._sync_client._retry.copy(), func, *args, **kwargs)

    # -- locks ------------------------------------------------------------------------------

    def Lock(
        self,
        path: str,
        identifier: str | None = None,
        extra_lock_patterns: tuple[str, ...] = (),
    ) -> AsyncLock:
        """Return an exclusive lock."""
        return AsyncLock(self, path, identifier, extra_lock_patterns)

    def ReadLock(
        self,
        path: str,
        identifier: str | None = None,
        extra_lock_patterns: tuple[str, ...] = (),
    ) -> AsyncReadLock:
        """Return the side of a shared lock that many may hold."""
        return AsyncReadLock(self, path, identifier, extra_lock_patterns)

    def WriteLock(
        self,
        path: str,
        identifier: str | None = None,
        extra_lock_patterns: tuple[str, ...] = (),
    ) -> AsyncWriteLock:
        """Return the side of a shared lock that excludes everybody else."""
        return AsyncWriteLock(self, path, identifier, extra_lock_patterns)

    # -- for the user -----------------------------------------------------------------------

    @property
    def leader(self) -> Endpoint | None:
        """The server that leads; None while that is not known."""
        return self._sync_client.leader

    @property
    def leader_term(self) -> int:
        """The highest epoch seen; -1 before there was any."""
        return self._sync_client.leader_term

    @property
    def session_endpoint(self) -> Endpoint | None:
        """The server that the session which writes is on; None if that is not known."""
        return self._sync_client.session_endpoint

    @property
    def load_balancer(self) -> LoadBalancer:
        """What chooses among the servers; there is none with `strategy` None."""
        return self._sync_client.load_balancer

    def endpoint_stats(self) -> dict[Endpoint, EndpointStats]:
        """Return what is known of every server now; nothing with `strategy` None."""
        return self._sync_client.endpoint_stats()

    # -- servers ----------------------------------------------------------------------------

    async def set_hosts(self, hosts: str | list[str], randomize_hosts: bool | None = None) -> None:
        """Make `hosts` the whole ensemble; waits until those that left it are disconnected."""
        await in_thread(self._sync_client.set_hosts, hosts, randomize_hosts)

    async def add_auth(self, scheme: str, credential: str) -> bool:
        """Authenticate on every session; return whether the one that writes could.

        Raises:
            AuthFailedError: it could not, and the session is over.
        """
        return bool(await self._ask(partial(self._sync_client.add_auth_async, scheme, credential)))

    async def command(self, cmd: bytes = b"ruok") -> str:
        """Return what the server of the session that writes answers to a four-letter word."""
        return str(await in_thread(self._sync_client.command, cmd))

    async def server_version(self, retries: int = 3) -> tuple[int, ...]:
        """Return the version of that server, as ``(3, 8, 4)``."""
        version: tuple[int, ...] = await in_thread(self._sync_client.server_version, retries)
        return version

    async def _read(self, name: str, *args: Any) -> Any:
        """Do a read where it belongs."""
        return await self._wait(getattr(self._sync_client, f"{name}_async")(*args))


def _in_loop(watch: Watch | None) -> Watch | None:
    return LoopCallback(watch) if callable(watch) else watch
