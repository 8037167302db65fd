"""Both routing channels of etcd offer the same things, and are what gRPC's channels are."""

from __future__ import annotations

import inspect
from typing import Any

import grpc
import grpc.aio
import pytest

import lb_strategies_etcd
from lb_strategies_etcd import AsyncRoutingChannel, RoutingChannel

ADDED = {"endpoint_stats", "leader", "leader_term", "load_balancer", "wait_for_leader"}
"""What routing adds to a channel, for the user."""
KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default of each parameter."""
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(
    ("cls", "upstream"), [(RoutingChannel, grpc.Channel), (AsyncRoutingChannel, grpc.aio.Channel)]
)
def test_a_channel_is_grpcs(cls: type, upstream: type) -> None:
    assert issubclass(cls, upstream)
    names = {name for name in dir(cls) if not name.startswith("_")}
    assert names >= ADDED


def test_the_constructors_take_the_same_keywords() -> None:
    # A channel for threads is intercepted by `grpc.intercept_channel`.
    both = [
        [p for p in parameters(cls.__init__) if p[0] != "interceptors"]
        for cls in (RoutingChannel, AsyncRoutingChannel)
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("name", [*KINDS, "endpoint_stats", "wait_for_leader"])
def test_what_both_have_has_the_same_parameters(name: str) -> None:
    ours, theirs = (getattr(cls, name) for cls in (RoutingChannel, AsyncRoutingChannel))
    assert parameters(ours) == parameters(theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_callable_takes_what_a_plain_one_takes(kind: str) -> None:
    with grpc.insecure_channel("127.0.0.1:1") as plain, RoutingChannel(["127.0.0.1:1"]) as routed:
        theirs, ours = (getattr(one, kind)("/package.Service/Method") for one in (plain, routed))
        for name in ("__call__", "with_call", "future"):
            assert hasattr(ours, name) == hasattr(theirs, name)
            if hasattr(theirs, name):
                assert parameters(getattr(ours, name)) == parameters(getattr(theirs, name))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_asynchronous_callable_takes_what_a_plain_one_takes(kind: str) -> None:
    async with (
        grpc.aio.insecure_channel("127.0.0.1:1") as plain,
        AsyncRoutingChannel(["127.0.0.1:1"]) as routed,
    ):
        theirs, ours = (getattr(one, kind)("/package.Service/Method") for one in (plain, routed))
        assert parameters(ours.__call__) == parameters(theirs.__call__)


@pytest.mark.parametrize("cls", [RoutingChannel, AsyncRoutingChannel])
def test_both_are_exported(cls: type) -> None:
    assert cls.__name__ in lb_strategies_etcd.__all__
