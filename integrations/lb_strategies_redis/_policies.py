"""Which commands go by their key."""

from __future__ import annotations

from typing import Any


def has_one_key(commands: Any, name: str) -> bool:
    """Whether the server says that the first argument of a command is its only key.

    Args:
        commands: what the client library made of the server's COMMAND reply.
        name: of the command.
    """
    info = commands.get(name.lower())
    return (
        isinstance(info, dict)
        and info["first_key_pos"] == info["last_key_pos"] == 1
        and "movablekeys" not in info["flags"]
    )


def goes_by_key(client: Any, name: str) -> bool:
    """Whether a client without policies has no rule for a command but the slot of its keys."""
    searches = getattr(client, "SEARCH_COMMANDS", ((),))[0]
    return name not in client.command_flags and name not in searches


def resolve_reads(client: Any) -> None:
    """Let a client that asks for a command's policy know at once that plain reads go by key."""
    if hasattr(client, "_policy_resolver"):
        from . import _resolvers  # older libraries have nothing that it imports

        _resolvers.put(client)


def restore(client: Any) -> None:
    """Undo `resolve_reads`."""
    if hasattr(client, "_policy_resolver"):
        from . import _resolvers

        _resolvers.take_out(client)
