"""Leader-aware routing for Python's etcd clients.

Importing the package imports neither grpc nor protobuf nor any etcd client; what needs them does,
when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .aio_channel import AsyncRoutingChannel
    from .channel import RoutingChannel
    from .clients import connect_aetcd, connect_etcd3, use_strategy

__all__ = [
    "AsyncRoutingChannel",
    "RoutingChannel",
    "connect_aetcd",
    "connect_etcd3",
    "use_strategy",
]

_HOMES = {
    "AsyncRoutingChannel": ".aio_channel",
    "RoutingChannel": ".channel",
    "connect_aetcd": ".clients",
    "connect_etcd3": ".clients",
    "use_strategy": ".clients",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: see the docstring of the package."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)
