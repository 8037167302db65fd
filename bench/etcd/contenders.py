"""The clients that compete on an etcd cluster, and how each is opened.

All send the same messages over as many connections as there are members. ``limit`` is what
nobody can have in production: writes straight to the leader, reads spread by hand over the members
that are well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from itertools import cycle
from typing import Any, Literal, TypeAlias

import grpc
import grpc.aio

from bench.contenders import Mode
from bench.etcd.messages import PUT, RANGE, PutRequest, PutResponse, RangeRequest, RangeResponse

Kind = Literal["ours", "grpc", "one", "limit", "leader", "bare", "bare_no_retries"]
Stub: TypeAlias = Callable[..., Any]
"""A unary callable of gRPC's: message and ``timeout``; with asyncio it returns an awaitable."""

_ROUND_ROBIN = ("grpc.service_config", '{"loadBalancingConfig":[{"round_robin":{}}]}')
_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
# What the routing channel sets too. Channels that agree in everything share one connection.
_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    _OWN_CONNECTION,
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A client and its strategy.

    Attributes:
        name: As reported; of ours, the value of a ``LoadBalancingStrategy``.
        kind: ``ours``: our channel; ``grpc``: one channel over all members with gRPC's own round
            robin; ``one``: a client of one endpoint; ``limit``: see the module; ``leader``:
            everything to the leader, by hand; ``bare``: a channel to the leader as gRPC makes it;
            ``bare_no_retries``: the same without gRPC's own retries.
    """

    name: str
    kind: Kind = "ours"


GRPC = Contender("grpc_round_robin", "grpc")
ONE = Contender("one_endpoint", "one")
LIMIT = Contender("limit", "limit")
OURS = "hybrid"
STOCK = "round_robin"
ALL = [
    *map(Contender, ("round_robin", "boltzmann", "latency_based", "hybrid")),
    GRPC,
    ONE,
    LIMIT,
]


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster that clients connect to, as it is now.

    Attributes:
        endpoints: Of all members.
        leader: Endpoint of the leader.
        configured: The only endpoint that ``one_endpoint`` knows.
        left_out: Endpoints that ``limit`` keeps away from.
    """

    endpoints: Sequence[str]
    leader: str
    configured: str
    left_out: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """An opened contender: a stub for each kind of request, and what has to be closed."""

    put: Stub
    get: Stub
    channels: Sequence[Any]

    def close(self) -> Awaitable[None] | None:
        """Close everything; with asyncio await what is returned."""
        results = [channel.close() for channel in self.channels]
        waiting = [result for result in results if isawaitable(result)]
        return _all(waiting) if waiting else None


def open_client(contender: Contender, place: Place, mode: Mode) -> Client:
    """Return a new client; with asyncio call it on the loop that will use it."""
    connect = _asyncio_channel if mode == "asyncio" else _sync_channel
    if contender.kind == "ours":
        channel = _our_channel(contender, place, mode)
        return Client(_put(channel), _get(channel), [channel])
    if contender.kind == "grpc":
        channel = connect(f"ipv4:{','.join(place.endpoints)}", _ROUND_ROBIN)
        return Client(_put(channel), _get(channel), [channel])
    if contender.kind == "bare":
        plain = grpc.aio.insecure_channel if mode == "asyncio" else grpc.insecure_channel
        channel = plain(place.leader, options=[_OWN_CONNECTION])
        return Client(_put(channel), _get(channel), [channel])
    if contender.kind == "bare_no_retries":
        channel = connect(place.leader)
        return Client(_put(channel), _get(channel), [channel])
    if contender.kind in ("one", "leader"):
        endpoint = place.configured if contender.kind == "one" else place.leader
        channels = [connect(endpoint) for _ in place.endpoints]
        return Client(_spread(map(_put, channels)), _spread(map(_get, channels)), channels)
    by_endpoint = {endpoint: connect(endpoint) for endpoint in place.endpoints}
    used = [channel for e, channel in by_endpoint.items() if e not in place.left_out]
    return Client(
        _put(by_endpoint[place.leader]), _spread(map(_get, used)), list(by_endpoint.values())
    )


def _our_channel(contender: Contender, place: Place, mode: Mode) -> Any:
    import lb_strategies_etcd

    chosen = "AsyncRoutingChannel" if mode == "asyncio" else "RoutingChannel"
    return getattr(lb_strategies_etcd, chosen)(place.endpoints, strategy=contender.name)


def _sync_channel(target: str, *options: tuple[str, object]) -> Any:
    return grpc.insecure_channel(target, options=[*_OPTIONS, *options])


def _asyncio_channel(target: str, *options: tuple[str, object]) -> Any:
    return grpc.aio.insecure_channel(target, options=[*_OPTIONS, *options])


def _put(channel: Any) -> Stub:
    stub: Stub = channel.unary_unary(PUT, PutRequest.SerializeToString, PutResponse.FromString)
    return stub


def _get(channel: Any) -> Stub:
    stub: Stub = channel.unary_unary(
        RANGE, RangeRequest.SerializeToString, RangeResponse.FromString
    )
    return stub


def _spread(stubs: Any) -> Stub:
    """Return a stub that sends by turns."""
    following = cycle(list(stubs)).__next__
    return lambda message, timeout: following()(message, timeout=timeout)


async def _all(waiting: Sequence[Awaitable[object]]) -> None:
    for one in waiting:
        await one
