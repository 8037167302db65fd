"""The servers of a connection string, as endpoints."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from kazoo.hosts import collect_hosts

Address = tuple[str, int]


def parse_hosts(hosts: str | list[str]) -> tuple[tuple[str, ...], str]:
    """Return the endpoints in a connection string of kazoo's, each once, and the chroot or ``""``.

    Raises:
        ValueError: there is no host in one of its places, or a port is no number.
    """
    found, chroot = collect_hosts(hosts)
    return tuple(dict.fromkeys(join_address(*address) for address in found)), chroot or ""


def join_address(host: str, port: int) -> str:
    """Return ``"host:port"``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_endpoint(endpoint: str) -> Address:
    """Undo `join_address`."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


def lookup(endpoint: str) -> tuple[Address, ...]:
    """Return the addresses that the name in `endpoint` stands for; none if it is not known."""
    host, port = split_endpoint(endpoint)
    try:
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError:
        return ()
    return tuple((str(entry[4][0]), port) for entry in found)


def expand(
    endpoints: Iterable[str],
    resolve: Callable[[str], tuple[Address, ...]] = lookup,
) -> tuple[str, ...]:
    """Return `endpoints` with names that stand for several servers replaced by their addresses.

    A name with an IPv4 and an IPv6 address, such as ``localhost``, is one server.
    """
    expanded: dict[str, None] = {}
    for endpoint in endpoints:
        addresses = resolve(endpoint)
        is_version_6 = bool(addresses) and ":" in addresses[0][0]
        alike = dict.fromkeys(a for a in addresses if (":" in a[0]) is is_version_6)
        several = [join_address(*address) for address in alike] if len(alike) > 1 else [endpoint]
        expanded.update(dict.fromkeys(several))
    return tuple(expanded)


class Directory:
    """Finds the endpoint that an address of a connection belongs to."""

    def __init__(self, resolve: Callable[[str], tuple[Address, ...]] = lookup) -> None:
        self._resolve = resolve
        self._known: dict[Address, str] = {}

    def find(self, address: Address, endpoints: Iterable[str]) -> str | None:
        """Return the one among `endpoints` that `address` is one of; None if there is none."""
        endpoints = tuple(endpoints)
        literal = join_address(*address)
        if literal in endpoints:
            return literal
        known = self._known.get(address)
        if known not in endpoints:
            self._known = {a: e for e in endpoints for a in self._resolve(e)}
            known = self._known.setdefault(address, "")
        return known or None
