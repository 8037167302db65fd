"""The asyncio client's part in dialling only what may be dialled."""

from __future__ import annotations

import inspect
from typing import Any

from ._addresses import refreshing
from ._derive import adopt, inherited, release
from ._library import library_of
from ._redirects import confirmation, is_known
from ._router import router_of


def guarded_manager_class(base: Any) -> Any:
    """Return a ``NodesManager`` that adds no node before nodes it knows have confirmed it."""
    library = library_of(base)

    class Guarded(base):
        __slots__ = ()

        async def initialize(self, additional: Any = None, *args: Any, **kwargs: Any) -> None:
            router = router_of(self)
            if router is None:
                await base.initialize(self, additional, *args, **kwargs)
                return
            # What a server has named is not asked: that is what is to be found out.
            kwargs.pop("additional_startup_nodes_info", None)
            servers = list(self.startup_nodes.values())
            for node in servers:
                adopt(node, server_class)
            router.refreshes += 1
            token = refreshing.set(router.addresses)
            try:
                await base.initialize(self, None, *args, **kwargs)
            finally:
                refreshing.reset(token)
                router.refreshes -= 1
                if not router.refreshes:
                    for node in servers:
                        release(node, server_class)

        async def _lb_confirm(self, error: Any) -> None:
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
                    await self.initialize()
                else:
                    answer = await self._lb_listing(node)

        async def _lb_listing(self, node: Any) -> Any:
            try:
                return await node.execute_command("CLUSTER NODES")
            except library.error:
                return None

        def _lb_add(self, host: str, port: int) -> Any:
            node = library.aio_cluster.ClusterNode(
                host, port, library.cluster.PRIMARY, **self.connection_kwargs
            )
            self.set_nodes(self.nodes_cache, {node.name: node})
            return self.nodes_cache[node.name]

    if not inspect.iscoroutinefunction(getattr(base, "move_slot", None)):
        return _older_manager_class(Guarded)

    class Moving(Guarded):
        __slots__ = ()

        async def move_slot(self, e: Any) -> None:
            if router_of(self) is not None:
                await self._lb_confirm(e)
                self.slots_cache.setdefault(e.slot_id, [])
            await base.move_slot(self, e)

    return Moving


def _older_manager_class(base: Any) -> Any:
    class Staying(base):  # before redis-py 8 there is nobody who could wait for a confirmation
        __slots__ = ()

        def move_slot(self, e: Any) -> None:
            # Only a transaction comes here with a node that is not known.
            if router_of(self) is None or is_known(self, e):
                base.move_slot(self, e)

    return Staying


def server_class(base: Any) -> Any:
    """Return a ``ClusterNode``, for the time of a refresh, that shows what can be dialled.

    The clients of all nodes have it only then: every command would pay for it.
    """

    class Server(base):
        __slots__ = ()

        async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
            reply = await inherited(base, self, "execute_command")(*args, **kwargs)
            addresses = refreshing.get()
            if addresses is not None and args == ("CLUSTER SLOTS",):
                return addresses.usable(reply, self.host)
            return reply

    return Server


class Asking:
    """The node of an ASK redirect, for one command: ASKING goes ahead on the same connection.

    redis-py's asyncio client sends ASKING by itself, on whichever connection is free, and the
    command on the next. A pipeline of two keeps them together.

    Args:
        node: where the redirect leads to.
    """

    __slots__ = ("_node",)

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def execute_command(self, *args: Any, asking: bool = False, **kwargs: Any) -> Any:
        """Send a command with ASKING before it; ASKING itself waits for its command."""
        if args == ("ASKING",):
            return None
        if asking:  # HIMPORT SET, which sees to it
            return await self._node.execute_command(*args, asking=True, **kwargs)
        kwargs.pop("keys", None)  # for a cache, which asyncio clients do not ask in pipelines
        command_class = library_of(type(self._node)).aio_cluster.PipelineCommand
        commands = [command_class(0, "ASKING"), command_class(1, *args, **kwargs)]
        await self._node.execute_pipeline(commands)
        for command in commands:
            if isinstance(command.result, Exception):
                raise command.result
        return commands[1].result
