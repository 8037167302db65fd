"""kazoo's client, with its session at the leader and its reads on all servers."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any, Final

import kazoo.client
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.retry import KazooRetry
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

from ._connections import Connections
from ._handlers import WriteHandler
from ._hosts import parse_hosts
from ._library import check_version, missing_parts
from ._listeners import Listener, Notifier
from ._probes import Probe
from ._progress import Progress
from ._reads import EXISTS, GET, GET_ACLS, Method, Read, children_method
from ._routed import routed
from ._routing import Routing
from ._view import KazooView

_LOGGER: Final = logging.getLogger("lb_strategies")

_FIND_LEADER: Final = 0.5
"""Seconds that `start` waits for the leader to be known, before it connects to anybody."""

Watch = Callable[[Any], object]


class KazooClient(kazoo.client.KazooClient):
    """A ``kazoo.client.KazooClient`` that is at the leader and reads everywhere.

    Its own session writes, watches, holds locks and ephemeral nodes. It is kept at the leader, and
    taken away from a server that hangs, with all that belongs to it. Reads without a watch are
    spread over sessions of their own, one on each server.

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
        check_version()
        self._routing: Routing | None = None
        consistency = ReadConsistency.parse(read_consistency)
        if strategy is None:
            super().__init__(hosts, timeout, **kwargs)
            return
        progress = Progress()
        handler = WriteHandler(progress, self._learn_zxid)
        _check_handler(kwargs.pop("handler", None))
        self._notifier = Notifier()
        kwargs.setdefault("connection_retry", None)
        if kwargs["connection_retry"] is None:
            kwargs["connection_retry"] = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.2)
        connections = Connections(self, kwargs)
        super().__init__(hosts, timeout, handler=handler, **kwargs)
        handler.client = self
        missing = missing_parts(self)
        if missing:
            _LOGGER.warning(
                "this kazoo has no %s, so the client stays with one server", ", ".join(missing)
            )
            return
        members, _ = parse_hosts(hosts)
        self._routing = Routing(
            self,
            members,
            strategy,
            options=options,
            progress=progress,
            probe=Probe(connections.dial, admin_port),
            connect=connections.connect_reader,
            consistency=consistency,
            fence=fence,
            expands=not connections.check_names,
            rng=rng,
        )
        self._call = self._routing.gate
        super().add_listener(self._watch_state)

    # -- life -------------------------------------------------------------------------------

    def start(self, timeout: float = 15) -> None:
        """Connect to the leader, or to anybody if it is not known soon; otherwise as kazoo."""
        self._find_leader(timeout)
        super().start(timeout)

    def _find_leader(self, timeout: float) -> None:
        """Wait a moment for the leader to be known, so that it is connected to first."""
        if self._routing is not None and not self.connected:
            self._routing.start()
            self._routing.wait_for_leader(min(timeout, _FIND_LEADER))
            self._routing.mover.follow()

    def start_async(self) -> Any:
        """Begin to connect, and return the event that tells when that is done."""
        if self._routing is not None:
            self._routing.start()
        return super().start_async()

    def stop(self) -> None:
        """End the session and all that was done in the background."""
        if self._routing is not None:
            self._routing.stop()
        super().stop()

    def set_hosts(self, hosts: str | list[str], randomize_hosts: bool | None = None) -> None:
        """Make `hosts` the whole ensemble; otherwise as kazoo."""
        super().set_hosts(hosts, randomize_hosts)
        if self._routing is not None:
            self._routing.use_members(parse_hosts(hosts)[0])

    def add_auth_async(self, scheme: str, credential: str) -> AsyncResult:
        """Authenticate on every session; the result is the one that writes."""
        result = super().add_auth_async(scheme, credential)
        if self._routing is not None:
            self._routing.sessions.add_auth(scheme, credential)
        return result

    # -- state listeners ----------------------------------------------------------------------

    def add_listener(self, listener: Callable[[KazooState], object]) -> None:
        """Have `listener` told of the state of the session that writes.

        It is called outside of the connection's thread, so it may use the client, in the order of
        the changes; the state may have changed once more by then.
        """
        if self._routing is not None and _may_wait(listener):
            listener = Listener(listener, self._notifier, self.remove_listener)
        super().add_listener(listener)

    def remove_listener(self, listener: Callable[[KazooState], object]) -> None:
        """Tell `listener` no more."""
        super().remove_listener(listener)
        if self._routing is not None:
            super().remove_listener(Listener(listener, self._notifier, self.remove_listener))

    def _watch_state(self, state: KazooState) -> None:
        if self._routing is not None:
            self._routing.state_changed(state)

    # -- reads ------------------------------------------------------------------------------

    @routed
    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, ZnodeStat]:  # noqa: D102
        read = self._begin(GET, path, watch)
        return super().get(path, watch) if read is None else read.fetch()

    @routed
    def get_async(self, path: str, watch: Watch | None = None) -> AsyncResult:  # noqa: D102
        read = self._begin(GET, path, watch)
        return super().get_async(path, watch) if read is None else read.fetch_async()

    @routed
    def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:  # noqa: D102
        read = self._begin(EXISTS, path, watch)
        return super().exists(path, watch) if read is None else read.fetch()

    @routed
    def exists_async(self, path: str, watch: Watch | None = None) -> AsyncResult:  # noqa: D102
        read = self._begin(EXISTS, path, watch)
        return super().exists_async(path, watch) if read is None else read.fetch_async()

    @routed
    def get_children(  # noqa: D102
        self, path: str, watch: Watch | None = None, include_data: bool = False
    ) -> list[str] | tuple[list[str], ZnodeStat]:
        read = self._begin(children_method(include_data), path, watch)
        return super().get_children(path, watch, include_data) if read is None else read.fetch()

    @routed
    def get_children_async(  # noqa: D102
        self, path: str, watch: Watch | None = None, include_data: bool = False
    ) -> AsyncResult:
        read = self._begin(children_method(include_data), path, watch)
        if read is None:
            return super().get_children_async(path, watch, include_data)
        return read.fetch_async()

    @routed
    def get_acls(self, path: str) -> tuple[list[ACL], ZnodeStat]:  # noqa: D102
        read = self._begin(GET_ACLS, path, None)
        return super().get_acls(path) if read is None else read.fetch()

    @routed
    def get_acls_async(self, path: str) -> AsyncResult:  # noqa: D102
        read = self._begin(GET_ACLS, path, None)
        return super().get_acls_async(path) if read is None else read.fetch_async()

    def with_options(self, *, read_consistency: ReadConsistency | str) -> KazooView:
        """Return a view of this client whose reads are as fresh as said; it costs nothing."""
        consistency = ReadConsistency.parse(read_consistency)

        def begin(method: Method, path: str) -> Read | None:
            return None if self._routing is None else self._routing.read(method, path, consistency)

        return KazooView(self, begin)

    def _begin(self, method: Method, path: str, watch: Watch | None) -> Read | None:
        """Return the read to be done elsewhere; None if it is for the session that writes."""
        if watch or self._routing is None:
            return None
        return self._routing.read(method, path)

    # -- for the user -----------------------------------------------------------------------

    @property
    def leader(self) -> Endpoint | None:
        """The server that leads; None while that is not known."""
        return None if self._routing is None else self._routing.leader

    @property
    def leader_term(self) -> int:
        """The highest epoch seen; -1 before there was any."""
        return -1 if self._routing is None else self._routing.leader_term

    @property
    def session_endpoint(self) -> Endpoint | None:
        """The server that the session which writes is on; None if that is not known."""
        return None if self._routing is None else self._routing.mover.member

    @property
    def load_balancer(self) -> LoadBalancer:
        """What chooses among the servers; there is none with `strategy` None."""
        if self._routing is None:
            raise AttributeError("a client without a strategy has no load balancer")
        return self._routing.load_balancer

    def endpoint_stats(self) -> dict[Endpoint, EndpointStats]:
        """Return what is known of every server now; nothing with `strategy` None."""
        return {} if self._routing is None else self._routing.endpoint_stats()

    # -- for the routing ----------------------------------------------------------------------

    def _learn_zxid(self, zxid: int) -> None:
        if self._routing is not None:
            self._routing.learn_zxid(zxid)


def _may_wait(listener: object) -> bool:
    """Whether `listener` is the user's; a recipe's does not wait, and has to be told in time."""
    is_of_kazoo = (getattr(listener, "__module__", None) or "").startswith("kazoo.")
    return callable(listener) and not is_of_kazoo


def _check_handler(handler: object) -> None:
    """Check that the handler that the user gave, if any, is one that we can do without."""
    if handler is not None and type(handler) is not SequentialThreadingHandler:
        raise TypeError(
            "a strategy needs kazoo's SequentialThreadingHandler, which is the default; with "
            f"{type(handler).__name__} use strategy=None"
        )
