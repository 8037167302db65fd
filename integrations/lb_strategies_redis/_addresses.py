"""Which of the addresses that servers name are dialled: remapped, usable, allowed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final, TypeAlias

from lb_strategies import EndpointPolicy

from ._errors import is_a, joined
from ._library import REDIS, Library, library_of

Address: TypeAlias = tuple[str, int]

_log = logging.getLogger("lb_strategies")

_REFUSED_FOR: Final = 1.0  # seconds until known nodes are asked about an address again
_MOST_REFUSED: Final = 1024  # addresses remembered
_STRANGERS: Final = ("handshake", "noaddr")  # nodes that the others have not met yet
_NOT_ALLOWED: Final = "endpoint_policy allows configured addresses only"
_UNCONFIRMED: Final = "no known node lists it, which endpoint_policy asks for"
_MOVED: Final = frozenset({"MovedError"})
_NO_ADDRESS: Final = "that is no address"


class EndpointRefusedError(Exception):
    """A server named an address that is not dialled; nothing was sent there.

    It is raised as a ``ClusterError`` of the client library, too. The message names the address
    and the reason. Raised for a redirect (MOVED, ASK), and when CLUSTER SLOTS names no primary
    that may be dialled.
    """


class Addresses:
    """What one client makes of the addresses that servers name; also its ``address_remap``.

    Args:
        policy: the user's; None to allow what known nodes confirm.
        library: that the client belongs to.
    """

    def __init__(self, policy: EndpointPolicy | None, library: Library = REDIS) -> None:
        self._library = library
        self._given = policy or EndpointPolicy(allow_unlisted=True)
        self._policy = self._given
        self.remap: Callable[[Address], Address] | None = None
        """The user's ``address_remap``; what it returns goes to the policy."""
        self.left_out: dict[str, str] = {}
        """Addresses of the latest CLUSTER SLOTS that are not used, with the reason."""
        self._refused_at: dict[Address, float] = {}

    def bind(self, manager: Any, startup_nodes: Iterable[Any]) -> None:
        """Stand between `manager` and the user's ``address_remap``."""
        remap = manager.address_remap
        self.remap = remap.remap if isinstance(remap, Addresses) else remap
        manager.address_remap = self
        self.configure(startup_nodes)

    def configure(self, startup_nodes: Iterable[Any]) -> None:
        """Take the nodes that the user named for configured ones."""
        if not self._given.allow_unlisted:
            self._policy = self._given.including(node.name for node in startup_nodes)

    def __call__(self, address: Address) -> Address:
        """Return where to dial for `address`, or itself if there is nowhere to."""
        return self.resolve(*address) or address

    def resolve(self, host: str, port: int) -> Address | None:
        """Return where to dial for an address that a server named; None for nowhere."""
        if self.remap is not None:
            host, port = self.remap((host, port))
        return self._allowed(host, port)

    def accept_all(self, nodes: Iterable[Any]) -> bool:
        """Whether nodes that redis-py made without asking us are what we would have made."""
        return all(self._allowed(node.host, node.port) == (node.host, node.port) for node in nodes)

    def _allowed(self, host: str, port: int) -> Address | None:
        if not _is_address(host, port):
            return None
        dialled = self._policy.resolve(f"{host}:{port}")
        return None if dialled is None else split(dialled)

    def usable(self, slots: Sequence[Any], asked: str) -> list[Any]:
        """Return a reply to CLUSTER SLOTS without what cannot or may not be dialled.

        A host that is null or empty stands for the host that was asked. A replica that is left
        out is not used; without its primary a range of slots is not covered by this reply.

        Args:
            slots: the reply as it came.
            asked: host of the node that sent it.

        Raises:
            EndpointRefusedError: nothing is left.
        """
        left_out: dict[str, str] = {}
        kept = []
        for first, last, *servers in slots:
            primary, *replicas = [self._server(server, asked, left_out) for server in servers]
            if primary is not None:
                kept.append([first, last, primary, *filter(None, replicas)])
        for name in left_out.keys() - self.left_out.keys():
            _log.warning("%s is left out of the topology: %s", name, left_out[name])
        self.left_out = left_out
        if slots and not kept:
            raise _refused(self._library)(f"CLUSTER SLOTS names no usable primary{self.note()}")
        return kept

    def _server(self, server: Sequence[Any], asked: str, left_out: dict[str, str]) -> Any:
        host, port = _text(server[0]) or asked, int(server[1])
        if self.resolve(host, port) is not None:
            return [host, port, *server[2:]]
        left_out[f"{host}:{port}"] = _reason(host, port)
        return None

    def note(self) -> str:
        """Return what to add to a message about slots that are not covered."""
        parts = [f"{name} ({reason})" for name, reason in list(self.left_out.items())[:5]]
        return f"; left out: {', '.join(parts)}" if parts else ""

    def localise(self, error: Any, asked: str) -> None:
        """Turn the address in a redirect into the one to dial.

        Args:
            error: the redirect; it keeps what the server said in ``_lb_named``.
            asked: host of the node that sent it.
        """
        error._lb_named = (error.host, error.port)
        dialled = self.resolve(error.host or asked, error.port)
        error._lb_refused = dialled is None
        error.host, error.port = error.node_addr = dialled or (error.host or asked, error.port)

    def check(self, error: Any) -> None:
        """Refuse a redirect that need not be looked into, or has just been.

        Raises:
            EndpointRefusedError: its address is not dialled.
        """
        if getattr(error, "_lb_refused", False):
            raise _refusal(error, _reason(error.host, error.port)) from error
        refused_at = self._refused_at.get((error.host, error.port))
        if refused_at is not None and perf_counter() - refused_at < _REFUSED_FOR:
            raise _refusal(error, _UNCONFIRMED) from error

    def is_listed(self, error: Any, nodes: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a parsed reply to CLUSTER NODES lists the address in a redirect."""
        host, port = getattr(error, "_lb_named", (error.host, error.port))
        for address, node in nodes.items():
            ip, _, number = address.rpartition(":")
            is_met = not any(flag in node["flags"] for flag in _STRANGERS)
            if is_met and number == str(port) and host in ("", ip, node.get("hostname")):
                return True
        return False

    def unconfirmed(self, error: Any) -> EndpointRefusedError:
        """Return the error for a redirect to an address that no known node has confirmed."""
        if len(self._refused_at) >= _MOST_REFUSED:
            self._refused_at.clear()
        self._refused_at[error.host, error.port] = perf_counter()
        return _refusal(error, _UNCONFIRMED)


refreshing: ContextVar[Addresses | None] = ContextVar("lb_strategies_refreshing", default=None)
"""Set while a client asks for CLUSTER SLOTS to renew its topology."""


def split(name: str) -> Address:
    """Return host and port of a ``"host:port"``."""
    host, _, port = name.rpartition(":")
    return host, int(port)


def unbind(manager: Any) -> None:
    """Undo `Addresses.bind`."""
    if isinstance(manager.address_remap, Addresses):
        manager.address_remap = manager.address_remap.remap


def _is_address(host: str | None, port: int) -> bool:
    return host not in (None, "", "?") and bool(port)


def _reason(host: str, port: int) -> str:
    return _NOT_ALLOWED if _is_address(host, port) else _NO_ADDRESS


def _refusal(error: Any, reason: str) -> EndpointRefusedError:
    kind = "MOVED" if is_a(error, _MOVED) else "ASK"
    message = f"{kind} to {error.host}:{error.port} is not followed: {reason}"
    refusal: EndpointRefusedError = _refused(library_of(type(error)))(message)
    return refusal


def _refused(library: Library) -> Any:
    return joined(EndpointRefusedError, "ClusterError", library)


def _text(host: Any) -> Any:
    return host.decode() if isinstance(host, bytes) else host
