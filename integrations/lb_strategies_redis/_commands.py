"""The asyncio client's table of commands: a refresh must not hang on one dead primary.

redis-py renews the table at every refresh of the topology, from the first primary that it knows.
If that one does not answer, no command gets through to any node, also of healthy shards.
"""

from __future__ import annotations

from typing import Any, Final

from ._errors import TRANSPORT, is_a

_PRIMARY: Final = "primary"


def _put_last(nodes: dict[str, Any], node: Any) -> None:
    if node.name in nodes:
        nodes[node.name] = nodes.pop(node.name)


class SteadyCommands:
    """Asks the next primary if one does not answer, and keeps what is known if none does.

    Args:
        original: redis-py's table.
        manager: the client's node manager.
    """

    def __init__(self, original: Any, manager: Any) -> None:
        self.original = original
        self._manager = manager

    async def initialize(self, node: Any = None) -> None:
        """Renew the table; a primary that does not answer is the last to be asked next time.

        Raises:
            redis.exceptions.ConnectionError: no primary answers and there was no table yet.
            redis.exceptions.TimeoutError: likewise.
        """
        manager = self._manager
        primaries = manager.get_nodes_by_server_type(_PRIMARY)
        for asked in [node, *(primary for primary in primaries if primary is not node)]:
            try:
                await self.original.initialize(asked)
                return
            except Exception as error:
                if not is_a(error, TRANSPORT):
                    raise
                failure = error
            if asked is not None:
                _put_last(manager.nodes_cache, asked)
                _put_last(manager.startup_nodes, asked)
            manager.default_node = next(iter(manager.get_nodes_by_server_type(_PRIMARY)), node)
        if not self.original.commands:
            raise failure

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)
