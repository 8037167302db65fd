"""Both Redis clients offer the same things, and every error of redis-py is understood."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any

import pytest
import redis.asyncio.cluster
import redis.cluster
import redis.exceptions

import lb_strategies_redis
from lb_strategies import Outcome
from lb_strategies_redis import AsyncRedisCluster, RedisCluster, use_strategy
from lb_strategies_redis._errors import outcome_of, unfit, unfit_reply, unwrap
from lb_strategies_redis._library import REDIS

ADDED = {"load_balancer", "endpoint_stats", "primary_reads"}
CLIENTS = {
    RedisCluster: redis.cluster.RedisCluster,
    AsyncRedisCluster: redis.asyncio.cluster.RedisCluster,
}


def added(cls: type, upstream: type) -> set[str]:
    """Return the public names that `cls` has and the class it extends has not."""
    return {name for name in dir(cls) if not name.startswith("_")} - set(dir(upstream))


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default of each parameter."""
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(("cls", "upstream"), CLIENTS.items())
def test_a_client_is_upstreams_and_adds_three_names(cls: type, upstream: type) -> None:
    assert issubclass(cls, upstream)
    assert added(cls, upstream) == ADDED


@pytest.mark.parametrize("name", sorted(ADDED))
def test_what_is_added_is_the_same_for_both(name: str) -> None:
    ours, theirs = (inspect.getattr_static(cls, name) for cls in CLIENTS)
    assert ours is theirs


def test_the_constructors_take_the_same_keywords() -> None:
    assert parameters(RedisCluster.__init__) == parameters(AsyncRedisCluster.__init__)
    keywords = [name for name, kind, _ in parameters(RedisCluster.__init__) if kind.name[0] == "K"]
    assert keywords == [
        "load_balancing_strategy",
        "balancer_options",
        "read_commands",
        "endpoint_policy",
    ]
    assert (inspect.getdoc(RedisCluster) or "").split("Args:")[1] == (
        inspect.getdoc(AsyncRedisCluster) or ""
    ).split("Args:")[1]


def test_use_strategy_takes_what_the_constructors_take() -> None:
    assert [(name, default) for name, _, default in parameters(use_strategy)] == [
        ("client", inspect.Parameter.empty),
        ("strategy", inspect.Parameter.empty),
        ("balancer_options", None),
        ("read_commands", ()),
        ("endpoint_policy", None),
    ]


def test_the_public_names() -> None:
    assert lb_strategies_redis.__all__ == [
        "AsyncRedisCluster",
        "EndpointRefusedError",
        "RedisCluster",
        "UnsupportedClientError",
        "use_strategy",
    ]
    assert all(hasattr(lb_strategies_redis, name) for name in lb_strategies_redis.__all__)


FAILURES = {"BusyLoadingError", "ClusterDownError", "MasterDownError"}
REDIRECTS = {"AskError", "MovedError", "TryAgainError"}
NEUTRAL = {
    # The client's own doing.
    *("AuthenticationError", "AuthenticationWrongNumberOfArgsError", "AuthorizationError"),
    *("MaxConnectionsError", "ClusterError", "RedisClusterException", "RedisError"),
    *("DataError", "LockError", "LockNotOwnedError", "InvalidPipelineStack", "WatchError"),
    *("SlotNotCoveredError", "ClusterTransactionError", "CrossSlotTransactionError"),
    *("InvalidResponse", "PubSubError", "ExternalAuthProviderError", "IncorrectPolicyType"),
    *("ChildDeadlockedError", "NoPermissionError"),
}
OUTCOMES = {
    **dict.fromkeys(FAILURES, Outcome.FAILURE),
    **dict.fromkeys(REDIRECTS, Outcome.REDIRECT),
    **dict.fromkeys(NEUTRAL, Outcome.REDIRECT),
    "ConnectionError": Outcome.FAILURE,
    "ClusterCrossSlotError": Outcome.SUCCESS,
    "TimeoutError": Outcome.TIMEOUT,
}
"""The rest are replies that prove that the server works."""

MESSAGES = {"AskError": ("1 127.0.0.1:1",), "MovedError": ("1 127.0.0.1:1",)}

ERRORS = [
    value
    for value in vars(redis.exceptions).values()
    if isinstance(value, type) and issubclass(value, Exception)
]


def made(cls: type[Exception]) -> Exception:
    return cls(*MESSAGES.get(cls.__name__, ("message",)))


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_of_redis_py_is_classified(cls: type[Exception]) -> None:
    expected = OUTCOMES.get(cls.__name__)
    if expected is None:
        assert issubclass(cls, redis.exceptions.ResponseError), f"{cls.__name__} is new"
        expected = Outcome.SUCCESS
    assert outcome_of(made(cls)) is expected


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit(), SystemExit()]
)
def test_giving_up_is_a_cancellation(error: BaseException) -> None:
    assert outcome_of(error) is Outcome.CANCELLED


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("x"), AssertionError("x")])
def test_what_is_not_redis_pys_says_nothing_about_the_node(error: Exception) -> None:
    assert outcome_of(error) is Outcome.REDIRECT


@pytest.mark.parametrize("stand_in", [unfit, partial(unfit_reply, library=REDIS)])
def test_a_stand_in_is_judged_and_shown_as_what_it_stands_for(stand_in: Any) -> None:
    cause = redis.exceptions.MasterDownError("down")
    error = stand_in(cause)
    assert outcome_of(error) is Outcome.FAILURE
    assert unwrap(error) is cause
    assert unwrap(cause) is cause
    assert str(error) == str(cause)
