"""Endpoints as people write them for etcd, and as gRPC takes them.

etcd's own clients accept ``host:port`` and URLs alike (``client/v3/internal/endpoint``), and so
does what people have in their environment. gRPC takes neither ``http://host:port`` nor a bare IPv6
address for what it is: it tries to look the one up as a name and connects to port 443 of the
other, and reports either as a member that is down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final, Literal

Scheme = Literal["http", "https", ""]

_LAST_PORT: Final = 65535
_FORMS: Final = '"host:port", "http://host:port", "https://host:port" or "dns:///host:port"'


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One member's address.

    Args:
        name: ``"host:port"``, in lower case, an IPv6 host in brackets and in its shortest form.
        scheme: ``"https"`` asks for TLS, ``"http"`` for none even if there are credentials, and
            with ``""`` it is the credentials that decide.
    """

    name: str
    scheme: Scheme

    @property
    def target(self) -> str:
        """What gRPC connects to; with its scheme, or it takes a host named "unix" for one."""
        return f"dns:///{self.name}"

    @property
    def host(self) -> str:
        """The host alone, without brackets: what a certificate must be issued for."""
        return self.name.rpartition(":")[0].strip("[]")

    def uses_tls(self, *, has_credentials: bool) -> bool:
        """Whether to connect over TLS, with credentials given or not.

        Raises:
            ValueError: ``https://`` without credentials.
        """
        if self.scheme == "https" and not has_credentials:
            raise ValueError(f"endpoint https://{self.name} needs credentials, got None")
        return has_credentials and self.scheme != "http"


def parse_endpoints(endpoints: Iterable[str], *, option: str = "endpoints") -> list[Endpoint]:
    """Return what the user configured, in order.

    Args:
        endpoints: as `parse_endpoint` takes them.
        option: what the errors call them.

    Raises:
        ValueError: there is none, one comes twice, or one is not understood.
        TypeError: they are not several strings.
    """
    if isinstance(endpoints, str | bytes) or not isinstance(endpoints, Iterable):
        raise TypeError(f"{option} must be several addresses, got {endpoints!r}")
    found: dict[str, Endpoint] = {}
    for text in endpoints:
        endpoint = parse_endpoint(text, option=option)
        if endpoint.name in found:
            raise ValueError(f"{option} must be different, got {endpoint.name} twice")
        found[endpoint.name] = endpoint
    if not found:
        raise ValueError(f"{option} must name at least one member, got none")
    return list(found.values())


def parse_endpoint(text: str, *, option: str = "endpoints") -> Endpoint:
    """Return the endpoint that `text` means.

    Args:
        text: ``host:port``, after ``http://``, ``https://``, ``dns:///`` or nothing. An IPv6 host
            stands in brackets.
        option: what the errors call it.

    Raises:
        ValueError: it is none of that. The message names the option and the value.
        TypeError: it is no string.
    """
    if not isinstance(text, str):
        raise TypeError(f"{option} must hold addresses as str, got {text!r}")
    scheme, address = _split_scheme(text.strip())
    host, port = _split_address(address.removesuffix("/"), text, option)
    return Endpoint(f"{host}:{port}", scheme)


def advertised_endpoint(url: str) -> Endpoint | None:
    """Return the endpoint in one of the client URLs that a member advertises.

    None if it cannot be dialled: not understood (a Unix socket), or an address that means every
    interface of the member's own host, such as ``0.0.0.0``. From elsewhere that would reach
    another server, or none.
    """
    try:
        endpoint = parse_endpoint(url)
    except ValueError:
        return None
    try:
        return None if ip_address(endpoint.host).is_unspecified else endpoint
    except ValueError:
        return endpoint  # a name


def _split_scheme(text: str) -> tuple[Scheme, str]:
    lowered = text.lower()
    for scheme in ("http", "https"):
        if lowered.startswith(f"{scheme}://"):
            return scheme, text[len(scheme) + 3 :]
    if lowered.startswith("dns:///"):
        return "", text[7:]
    return "", text


def _split_address(address: str, text: str, option: str) -> tuple[str, int]:
    shown = repr(text if "@" not in text else f"***@{text.rpartition('@')[2]}")
    if any(sign in address for sign in "/?#@, \t\r\n"):
        raise ValueError(f"{option} must be {_FORMS}, got {shown}")
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= len(str(_LAST_PORT))
    for bare, example in ((host, port), (address, "2379")):
        if _is_ipv6(bare) and (is_port or bare is address):
            raise ValueError(
                f"{option} must have an IPv6 host in brackets, as in "
                f'"[{bare}]:{example}", got {shown}'
            )
    if not (host and is_port and 0 < int(port) <= _LAST_PORT):
        raise ValueError(f"{option} must be {_FORMS} with a port from 1 to 65535, got {shown}")
    return _normal_host(host, shown, option), int(port)


def _normal_host(host: str, shown: str, option: str) -> str:
    if host.startswith("[") and host.endswith("]") and _is_ipv6(host[1:-1]) and "%" not in host:
        return f"[{IPv6Address(host[1:-1])}]"
    if any(sign in host for sign in ":[]%"):
        raise ValueError(f"{option} must be {_FORMS}, got {shown}")
    return host.lower()


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
