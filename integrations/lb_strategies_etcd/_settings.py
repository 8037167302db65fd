"""What a routing channel is made of, checked once: members, TLS, options of their channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc

from lb_strategies import EndpointPolicy

from ._endpoints import Endpoint, parse_endpoints

_MEMBER_OPTIONS: Final = (
    # A member that is back should be noticed soon; the default is two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The least time that an attempt to connect is given, its handshakes included. It does not
    # matter to a member that refuses, only to one that says nothing.
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_NO_RETRIES: Final = ("grpc.enable_retries", 0)
"""The user's service config must not bring them back: after a second attempt of gRPC's own, "failed
to connect" is about that one, and hides that the first had been executed (11 of 826 puts)."""
_MOST_CHANNELS: Final = 64

ChannelOptions = Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything about the members' channels that the user may choose.

    Args:
        endpoints: as the user gave them.
        credentials: for TLS; the certificate of each member is checked for that member's name.
        channel_options: of each member's channels, after ours, so that the user's count.
        channels_per_member: connections to each member, 1 to 64.
        user: name to authenticate with; None for no authentication.
        password: of that user.
        endpoint_policy: which advertised addresses may be dialled; None to stay with `endpoints`.

    Raises:
        ValueError: no endpoint, one given twice or not understood; TLS asked for without
            credentials; one of user and password alone; a count out of range.
        TypeError: an argument is of another type.
    """

    endpoints: Iterable[str]
    credentials: grpc.ChannelCredentials | None = None
    channel_options: ChannelOptions | None = None
    channels_per_member: int = 1
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    endpoint_policy: EndpointPolicy | None = None
    members: dict[str, Endpoint] = field(init=False)
    """The configured ones by name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", {e.name: e for e in parse_endpoints(self.endpoints)})
        count = self.channels_per_member
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"channels_per_member must be an int, got {count!r}")
        if not 1 <= count <= _MOST_CHANNELS:
            raise ValueError(f"channels_per_member must be 1 to {_MOST_CHANNELS}, got {count!r}")
        if (self.user is None) != (self.password is None):
            missing = "password" if self.password is None else "user"
            raise ValueError(f"user and password go together, got no {missing}")
        if not isinstance(self.endpoint_policy, EndpointPolicy | None):
            raise TypeError(
                f"endpoint_policy must be an EndpointPolicy, got {self.endpoint_policy!r}"
            )
        for endpoint in self.members.values():
            endpoint.uses_tls(has_credentials=self.credentials is not None)

    def is_secure(self, member: str) -> bool:
        """Whether `member` is spoken to over TLS."""
        return self._endpoint(member).uses_tls(has_credentials=self.credentials is not None)

    def target(self, member: str) -> str:
        """Return what gRPC connects to for `member`."""
        return self._endpoint(member).target

    def options(self, index: int) -> list[tuple[str, object]]:
        """Return the options of the `index`-th channel to a member.

        Channels with equal options share one connection, so the further ones get a pool of
        their own.
        """
        own = [("grpc.use_local_subchannel_pool", 1), ("lb.channel", index)] if index else []
        return [*_MEMBER_OPTIONS, *own, *(self.channel_options or ()), _NO_RETRIES]

    def _endpoint(self, member: str) -> Endpoint:
        known = self.members.get(member)
        return Endpoint(member, "") if known is None else known  # found by discovery
