"""Leader-aware routing for kazoo, ZooKeeper's Python client.

Importing the package does not import kazoo; what needs it does, when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._library import UnsupportedClientError
    from .aio import AsyncKazooClient
    from .client import KazooClient

__all__ = ["AsyncKazooClient", "KazooClient", "UnsupportedClientError"]

_HOMES = {
    "AsyncKazooClient": ".aio",
    "KazooClient": ".client",
    "UnsupportedClientError": "._library",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: see the docstring of the package."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)
