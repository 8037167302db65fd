"""Which of the addresses that a server names may be dialled.

Stores tell their clients where to go: Redis Cluster in CLUSTER SLOTS, MOVED and ASK, others in
member lists and leader hints. Whoever dials what a server names also sends it credentials.
"""

from collections.abc import Iterable, Mapping

_LAST_PORT = 65535


class EndpointPolicy:
    """Decides whether an address that a server names is dialled, and as what.

    An explicit mapping comes first, then what is configured; anything else is refused unless
    `allow_unlisted`. Addresses are ``"host:port"``, compared without regard to case. A client
    adds the addresses that it was started with to the configured ones.

    Args:
        configured: addresses that may be dialled.
        endpoint_map: from an address that a server names to the one to dial in its place,
            which needs no listing of its own.
        allow_unlisted: whether other addresses may be dialled as they are. A client still has
            them confirmed by servers that it knows before it sends them anything.

    Raises:
        ValueError: something is not ``"host:port"`` with a port from 1 to 65535.
        TypeError: an argument is of another type.
    """

    def __init__(
        self,
        configured: Iterable[str] = (),
        *,
        endpoint_map: Mapping[str, str] | None = None,
        allow_unlisted: bool = False,
    ) -> None:
        if isinstance(configured, str) or not isinstance(configured, Iterable):
            raise TypeError(f"configured must be several addresses, got {configured!r}")
        if not isinstance(endpoint_map, Mapping | None):
            raise TypeError(f"endpoint_map must be a mapping, got {endpoint_map!r}")
        if not isinstance(allow_unlisted, bool):
            raise TypeError(f"allow_unlisted must be a bool, got {allow_unlisted!r}")
        self._configured = tuple(configured)
        self._map = dict(endpoint_map or {})
        self._allow_unlisted = allow_unlisted
        self._dialled: dict[str, str] = {}
        for name in self._configured:
            self._dialled.setdefault(_key("configured", name), name)
        for target in self._map.values():
            self._dialled.setdefault(_key("endpoint_map", target), target)
        # Last, because a mapping has the say; its target is spelled as it is configured, so
        # that one server never gets two pools of connections.
        targets = {
            _key("endpoint_map", name): self._dialled[_key("endpoint_map", target)]
            for name, target in self._map.items()
        }
        self._dialled.update(targets)

    @property
    def allow_unlisted(self) -> bool:
        """Whether an address may be dialled that is neither configured nor mapped."""
        return self._allow_unlisted

    def resolve(self, endpoint: str) -> str | None:
        """Return the address to dial for one that a server names; None if it is refused."""
        dialled = self._dialled.get(_normal(endpoint))
        if dialled is None and self._allow_unlisted:
            return endpoint
        return dialled

    def including(self, endpoints: Iterable[str]) -> "EndpointPolicy":
        """Return the same policy with more configured addresses."""
        return EndpointPolicy(
            (*self._configured, *endpoints),
            endpoint_map=self._map,
            allow_unlisted=self._allow_unlisted,
        )

    def __repr__(self) -> str:
        return (
            f"EndpointPolicy({self._configured!r}, endpoint_map={self._map!r}, "
            f"allow_unlisted={self._allow_unlisted})"
        )


def _normal(endpoint: str) -> str:
    return endpoint.strip().casefold()


def _key(option: str, endpoint: object) -> str:
    """Check an address that the user passed and return its normal form."""
    if not isinstance(endpoint, str):
        raise TypeError(f"{option} must hold addresses as str, got {endpoint!r}")
    host, _, port = _normal(endpoint).rpartition(":")
    if host in ("", "?") or not (port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT):
        raise ValueError(f'{option} must hold addresses as "host:port", got {endpoint!r}')
    return f"{host}:{port}"
