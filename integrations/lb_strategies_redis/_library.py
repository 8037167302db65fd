"""Which client library a cluster client belongs to, and what that library calls things.

redis-py and valkey-py are one code base that grew apart: the same classes and methods, with
``redis`` or ``valkey`` in their names. What a *version* lacks is another matter, see
`_seams_sync` and `_seams_aio`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from lb_strategies import LoadBalancerError, LoadBalancingStrategy


class UnsupportedClientError(LoadBalancerError):
    """The client library at hand is too old or too new for this adapter."""


@dataclass(frozen=True)
class Library:
    """A client library; nothing of it is imported before it is asked for.

    Args:
        package: the name it is imported by.
        oldest: the first version that is supported.
        below: the first version that is not supported any more.
    """

    package: str
    oldest: tuple[int, int]
    below: tuple[int, int]

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.package}-py"

    @cached_property
    def cluster(self) -> ModuleType:
        """The module of the synchronous cluster client."""
        return import_module(f"{self.package}.cluster")

    @cached_property
    def aio_cluster(self) -> ModuleType:
        """The module of the asyncio cluster client."""
        return import_module(f"{self.package}.asyncio.cluster")

    @cached_property
    def exceptions(self) -> ModuleType:
        """The module of the errors."""
        return import_module(f"{self.package}.exceptions")

    @property
    def parse_url(self) -> Callable[[str], dict[str, Any]]:
        """What the library makes of a URL."""
        parse: Callable[[str], dict[str, Any]] = import_module(
            f"{self.package}.connection"
        ).parse_url
        return parse

    @cached_property
    def version(self) -> str:
        """The version that is installed."""
        return str(import_module(self.package).__version__)

    @cached_property
    def read_commands(self) -> frozenset[str]:
        """The commands that the library itself would send to replicas."""
        return frozenset(import_module(f"{self.package}.commands").READ_COMMANDS)

    @cached_property
    def cluster_clients(self) -> tuple[type, type]:
        """The cluster clients, synchronous and asyncio."""
        name = f"{self.package.capitalize()}Cluster"
        return getattr(self.cluster, name), getattr(self.aio_cluster, name)

    @cached_property
    def error(self) -> Any:
        """The root of the errors."""
        return getattr(self.exceptions, f"{self.package.capitalize()}Error")

    @property
    def connect_func(self) -> str:
        """What a connection calls the function that it calls when it has connected."""
        return f"{self.package}_connect_func"

    def node_client(self, node: Any) -> Any:
        """Return the client that a node of the synchronous client talks through, or None."""
        return getattr(node, f"{self.package}_connection")

    @property
    def selector(self) -> str:
        """The attribute of a client that makes it read from replicas."""
        return "load_balancing_strategy" if self._strategies else "read_from_replicas"

    @cached_property
    def strategies(self) -> dict[LoadBalancingStrategy, Any]:
        """The strategies that are the library's own, and what the selector must be for them.

        valkey-py has no enumeration of strategies but what redis-py calls round robin.
        """
        if not self._strategies:
            return {LoadBalancingStrategy.ROUND_ROBIN: True}
        return {LoadBalancingStrategy(member.value): member for member in self._strategies}

    @cached_property
    def _strategies(self) -> tuple[Any, ...]:
        return tuple(getattr(self.cluster, "LoadBalancingStrategy", ()))

    def check(self) -> None:
        """Check that this version is one that the adapter has been tested with.

        Raises:
            UnsupportedClientError: it is not.
        """
        found = tuple(int(number) for number in re.findall(r"\d+", self.version)[:2])
        if not self.oldest <= found < self.below:
            raise UnsupportedClientError(
                f"lb-strategies supports {self.name} from {_dotted(self.oldest)} to below "
                f"{_dotted(self.below)}, and {self.version} is installed"
            )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


REDIS: Final = Library("redis", oldest=(5, 3), below=(9, 0))
VALKEY: Final = Library("valkey", oldest=(6, 1), below=(7, 0))

_LIBRARIES: Final = {library.package: library for library in (REDIS, VALKEY)}


def find_library(cls: type) -> Library | None:
    """Return the library that `cls`, or a class that it derives from, belongs to, if any."""
    packages = (base.__module__.partition(".")[0] for base in cls.__mro__)
    return next((_LIBRARIES[package] for package in packages if package in _LIBRARIES), None)


def library_of(cls: type) -> Library:
    """Return the library that a class known to come from one belongs to."""
    library = find_library(cls)
    assert library is not None
    return library
