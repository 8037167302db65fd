"""The clients that people already use, over all members: etcd3 and aetcd."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import grpc

from lb_strategies import (
    ConsensusOptions,
    EndpointPolicy,
    LoadBalancer,
    LoadBalancingStrategy,
    Policy,
)

from . import _aetcd, _etcd3
from ._credentials import FilePath, make_credentials
from ._opt_in import RoutedClient
from .aio_channel import AsyncRoutingChannel
from .channel import RoutingChannel
from .compat import install

if TYPE_CHECKING:
    import aetcd
    import etcd3

    class RoutedEtcd3Client(RoutedClient, etcd3.Etcd3Client):
        """An ``etcd3.Etcd3Client`` over all members."""

    class RoutedAetcdClient(RoutedClient, aetcd.Client):
        """An ``aetcd.Client`` over all members."""


_ChannelT = TypeVar("_ChannelT")


class ChannelArguments(TypedDict, total=False):
    """What else the channel of a client can be told; all of it is optional."""

    options: ConsensusOptions | None
    """Tunables of routing."""
    user: str | None
    """Name to authenticate with, on each member that is used; tokens are renewed."""
    password: str | None
    """Of that user."""
    credentials: grpc.ChannelCredentials | None
    """For TLS; each member's certificate is checked for its own name. Instead of these, files:"""
    ca_cert: FilePath | None
    """PEM file of whom to trust."""
    cert_key: FilePath | None
    """PEM file of the client's private key."""
    cert_cert: FilePath | None
    """PEM file of the client's certificate."""
    channel_options: Iterable[tuple[str, object]] | None
    """For the plain channels to the members."""
    channels_per_member: int
    """Connections to each member, 1 to 64; 1 if not given."""
    resume_watches: bool
    """Whether a watch whose member fails goes on at another one; not if not given."""
    endpoint_policy: EndpointPolicy | None
    """Which of the addresses that members advertise may be dialled; with it, members that join
    and leave are followed."""
    rng: random.Random | None
    """Source of randomness; a new one if not given."""


def connect_etcd3(
    endpoints: Iterable[str],
    *,
    strategy: LoadBalancingStrategy | Policy | str = LoadBalancingStrategy.HYBRID,
    timeout: float | None = None,
    **channel: Unpack[ChannelArguments],
) -> RoutedEtcd3Client:
    """Return an ``etcd3.Etcd3Client`` over all members of a cluster.

    Nothing is sent before its first call, so neither unreachable members nor wrong passwords are
    noticed here. Closing it closes all connections.

    Args:
        endpoints: the members, as ``host:port`` or URLs.
        strategy: how reads are spread, and whether writes are pinned to the leader.
        timeout: how long each call may take, all attempts included, in seconds; None for no end.
        channel: see `ChannelArguments`.

    Raises:
        ImportError: there is no etcd3.
        ValueError: an endpoint, the strategy or an option is out of range.
        TypeError: an argument is of another type.
    """
    install()
    etcd3 = _package("etcd3", "connect_etcd3")
    _check_timeout(timeout)
    make, secure = _maker(RoutingChannel, endpoints, strategy, channel)
    routing = make()
    client: Any = etcd3.Etcd3Client(timeout=timeout)
    _etcd3.attach(client, lambda: routing, has_user=True, secure=secure)
    _etcd3.forget_own(client)
    routed: RoutedEtcd3Client = client
    return routed


async def connect_aetcd(
    endpoints: Iterable[str],
    *,
    strategy: LoadBalancingStrategy | Policy | str = LoadBalancingStrategy.HYBRID,
    timeout: float | None = None,
    **channel: Unpack[ChannelArguments],
) -> RoutedAetcdClient:
    """Return an ``aetcd.Client`` over all members of a cluster; as `connect_etcd3` otherwise."""
    aetcd = _package("aetcd", "connect_aetcd")
    _check_timeout(timeout)
    client: Any = aetcd.Client(timeout=timeout)
    make, secure = _maker(AsyncRoutingChannel, endpoints, strategy, channel)
    _aetcd.attach(client, make, has_user=True, secure=secure)
    client._lb_replaced = {}
    await client.connect()
    routed: RoutedAetcdClient = client
    return routed


def use_strategy(
    client: etcd3.Etcd3Client | aetcd.Client,
    strategy: LoadBalancingStrategy | Policy | str | None,
    *,
    endpoints: Iterable[str] = (),
    **channel: Unpack[ChannelArguments],
) -> LoadBalancer | None:
    """Have a client that something else built route over all members; it stays the same object.

    No other client is affected. Watches that the client has already go on over the connection that
    it had, and its own token is sent as long as no `user` is given.

    Args:
        client: of etcd3, cslab-etcd3, python3-etcd3 or aetcd, or of a class derived from theirs.
        strategy: how reads are spread, and whether writes are pinned to the leader; None gives
            the client back what it had, and ends what is going on over all members.
        endpoints: the members, as ``host:port`` or URLs.
        channel: see `ChannelArguments`. If the client speaks TLS, the credentials are needed,
            since they cannot be had from it.

    Returns:
        The balancer, or None without a strategy.

    Raises:
        TypeError: `client` is of another kind, or an argument is of another type.
        ValueError: an endpoint, the strategy or an option is out of range, or there are arguments
            without a strategy. The client is then as it was.
    """
    shell = _shell_of(client)
    is_routed = isinstance(client, RoutedClient)
    has_own = not isinstance(client, RoutedClient) or bool(client._lb_replaced)
    if strategy is None:
        if endpoints or channel:
            raise ValueError("endpoints and other arguments need a strategy, got None")
        if not has_own:
            raise ValueError(
                "strategy must not be None: a client of connect_etcd3 or connect_aetcd has no "
                "connection of its own to go back to"
            )
        if is_routed:
            shell.detach(client)
        return None
    target: Any = client
    user = channel.get("user")
    if shell is _aetcd and user is None and target._username is not None:
        user = channel["user"] = target._username
        channel["password"] = target._password
    kind: Any = RoutingChannel if shell is _etcd3 else AsyncRoutingChannel
    make, secure = _maker(kind, endpoints, strategy, channel)
    if shell.is_secure(client) and not secure:
        raise ValueError("credentials or ca_cert must be given, as the client speaks TLS")
    shell.attach(client, make, has_user=user is not None, secure=secure)
    if not has_own:
        target._lb_replaced = {}
    balancer: LoadBalancer = target.load_balancer
    return balancer


def _shell_of(client: object) -> ModuleType:
    """Return the module that knows how to handle `client`."""
    for name, shell in (("etcd3.client", _etcd3), ("aetcd.client", _aetcd)):
        module = sys.modules.get(name)
        if module is not None and isinstance(client, shell.kind(module)):
            return shell
    raise TypeError(f"a client of etcd3 or aetcd is needed, got {type(client).__name__}")


def _package(name: str, wanted_by: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f'{wanted_by} needs {name}, which "lb-strategies[{name}]" brings'
        ) from error


def _maker(
    kind: Callable[..., _ChannelT],
    endpoints: Iterable[str],
    strategy: LoadBalancingStrategy | Policy | str,
    channel: Mapping[str, Any],
) -> tuple[Callable[[], _ChannelT], bool]:
    """Return what makes channels of `kind`, and whether they have TLS."""
    arguments = dict(channel)
    arguments["credentials"] = make_credentials(
        arguments.get("credentials"),
        ca_cert=arguments.pop("ca_cert", None),
        cert_key=arguments.pop("cert_key", None),
        cert_cert=arguments.pop("cert_cert", None),
    )
    # There may be more than one channel to make of them.
    several = endpoints if isinstance(endpoints, str | bytes) else tuple(endpoints)
    make = partial(kind, several, strategy=strategy, **arguments)
    return make, arguments["credentials"] is not None


def _check_timeout(timeout: float | None) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or None, got {timeout!r}")
    if not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout must be finite and greater than 0, got {timeout!r}")
