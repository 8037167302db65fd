"""The synchronous client's part in dialling only what may be dialled."""

from __future__ import annotations

from typing import Any

from . import _seams_sync as seams
from ._addresses import Addresses, refreshing
from ._derive import adopt, inherited
from ._library import library_of
from ._redirects import confirmation
from ._router import router_of


def guarded_manager_class(base: Any) -> Any:
    """Return a ``NodesManager`` that adds no node before nodes it knows have confirmed it."""
    library = library_of(base)

    class Guarded(base):
        __slots__ = ()

        def initialize(self, additional: Any = None, *args: Any, **kwargs: Any) -> None:
            router = router_of(self)
            if router is None:
                base.initialize(self, additional, *args, **kwargs)
                return
            # What a server has named is not asked: that is what is to be found out.
            kwargs.pop("additional_startup_nodes_info", None)
            token = refreshing.set(router.addresses)
            try:
                base.initialize(self, None, *args, **kwargs)
            finally:
                refreshing.reset(token)

        def move_slot(self, e: Any) -> None:
            if router_of(self) is not None:
                self._lb_confirm(e)
                self.slots_cache.setdefault(e.slot_id, [])
            base.move_slot(self, e)

        def update_moved_exception(self, e: Any) -> None:  # before redis-py 7.2
            if router_of(self) is not None:
                self._lb_confirm(e)
                self.slots_cache.setdefault(e.slot_id, [])
            base.update_moved_exception(self, e)

        def _lb_confirm(self, error: Any) -> None:
            """Have known nodes confirm the target of a redirect; it is a node afterwards."""
            plan = confirmation(self, error)
            answer = None
            while True:
                try:
                    node = plan.send(answer)
                except StopIteration as end:
                    if end.value:
                        self._lb_add(error.host, error.port)
                    return
                if node is None:
                    self.initialize()
                else:
                    answer = self._lb_listing(node)

        def _lb_listing(self, node: Any) -> Any:
            self.create_redis_connections([node])
            try:
                return library.node_client(node).execute_command("CLUSTER NODES")
            except library.error:
                return None

        def _lb_add(self, host: str, port: int) -> Any:
            node = library.cluster.ClusterNode(host, port, library.cluster.PRIMARY)
            with self._lock:
                return self.nodes_cache.setdefault(node.name, node)

    return Guarded


def opening_class(base: Any) -> Any:
    """Return a synchronous client that is being built.

    redis-py asks for CLUSTER SLOTS, and then sends COMMAND to a node that it names, before the
    client can be opted in.
    """

    class Opening(base):
        def on_connect(self, connection: Any) -> None:
            base.on_connect(self, connection)
            connection._lb_addresses = self._lb_router.addresses
            connection._lb_addresses.configure(seams.startup_nodes(self))
            adopt(connection, first_connection_class)

    return Opening


def first_connection_class(base: Any) -> Any:
    """Return a connection, used while its client is built, that shows what can be dialled."""

    class FirstConnection(base):
        _lb_sent: tuple[Any, ...] = ()
        _lb_addresses: Addresses

        def send_command(self, *args: Any, **kwargs: Any) -> None:
            base.send_command(self, *args, **kwargs)
            self._lb_sent = args

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            reply = base.read_response(self, *args, **kwargs)
            if self._lb_sent == ("CLUSTER SLOTS",):
                return self._lb_addresses.usable(reply, self.host)
            return reply

    return FirstConnection


def server_class(base: Any) -> Any:
    """Return a ``Redis``, the client of one node, that shows a refresh what can be dialled."""

    class Server(base):
        def execute_command(self, *args: Any, **kwargs: Any) -> Any:
            reply = inherited(base, self, "execute_command")(*args, **kwargs)
            addresses = refreshing.get()
            if addresses is not None and args == ("CLUSTER SLOTS",):
                return addresses.usable(reply, self.connection_pool.connection_kwargs["host"])
            return reply

    return Server


class _Proxy:
    """Has the attributes of another object.

    Args:
        target: the other one.
    """

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "_target", target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._target, name, value)


class Onward(_Proxy):
    """The node that a redirect leads to, for one command: a connection to it can always be had.

    One that could not be made fails when it is used. The client library gives the connection of
    the redirect back and keeps hold of it until it has the next. If there is none, it cuts that
    connection, under the hands of the thread that has taken it meanwhile, and gives it to the
    pool of the node that it has no connection to, which valkey-py's pools take for their own.
    """

    __slots__ = ()

    @property
    def redis_connection(self) -> Any:
        """The client of the node, as redis-py calls it."""
        server = self._target.redis_connection
        return None if server is None else _Server(server)

    @property
    def valkey_connection(self) -> Any:
        """The client of the node, as valkey-py calls it."""
        server = self._target.valkey_connection
        return None if server is None else _Server(server)


class _Server(_Proxy):
    __slots__ = ()

    @property
    def connection_pool(self) -> Any:
        return _Pool(self._target.connection_pool)


class _Pool(_Proxy):
    __slots__ = ()

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._target.get_connection(*args, **kwargs)
        except BaseException as error:
            return _Unmade(error)

    def release(self, connection: Any) -> None:
        if not isinstance(connection, _Unmade):
            self._target.release(connection)


class _Unmade:
    """Raises, whatever it is used for, but for being closed.

    Args:
        error: what to raise.
    """

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __bool__(self) -> bool:
        return False  # so that nobody asks it for its address

    def __getattr__(self, name: str) -> Any:
        raise self._error

    def disconnect(self, *_: Any) -> None:
        pass
