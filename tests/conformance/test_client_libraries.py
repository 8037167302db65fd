"""Either client library works without the other, and only in versions that are supported."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import redis
import valkey.asyncio.cluster
import valkey.cluster
import valkey.exceptions

from lb_strategies import LoadBalancerError, LoadBalancingStrategy, Outcome
from lb_strategies_redis import (
    AsyncRedisCluster,
    RedisCluster,
    UnsupportedClientError,
    use_strategy,
)
from lb_strategies_redis._errors import outcome_of, unfit, unfit_reply, unwrap
from lb_strategies_redis._library import REDIS, VALKEY, Library
from lb_strategies_redis.valkey import AsyncValkeyCluster, ValkeyCluster

REDIS_CLIENTS = "lb_strategies_redis"
VALKEY_CLIENTS = "lb_strategies_redis.valkey"
NOWHERE: dict[str, Any] = {"host": "127.0.0.1", "port": 1}


def python(code: str) -> str:
    """Run `code` in a Python of its own and return what it printed last."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("module", "names", "other"),
    [
        (REDIS_CLIENTS, "AsyncRedisCluster, RedisCluster, use_strategy", "valkey"),
        (VALKEY_CLIENTS, "AsyncValkeyCluster, ValkeyCluster", "redis"),
    ],
)
def test_neither_library_needs_the_other(module: str, names: str, other: str) -> None:
    load = f"import sys; from {module} import {names}; print({other!r} in sys.modules)"
    assert python(load) == "False"  # and does not load it either
    assert python(f"import sys; sys.modules[{other!r}] = None; {load}") == "True"


@pytest.mark.parametrize(
    ("module", "name", "missing"),
    [(REDIS_CLIENTS, "RedisCluster", "redis"), (VALKEY_CLIENTS, "ValkeyCluster", "valkey")],
)
def test_a_library_that_is_not_installed_is_named(module: str, name: str, missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"try: from {module} import {name}\n"
        "except ImportError as error: print(error)"
    )
    assert missing in python(code)


@pytest.mark.parametrize(
    ("library", "version"),
    [
        (REDIS, "4.6.0"),
        (REDIS, "5.2.1"),
        (REDIS, "9.0.0"),
        (REDIS, "9.0.0b1"),
        (REDIS, "10.1"),
        (VALKEY, "6.0.2"),
        (VALKEY, "7.0.0"),
    ],
)
def test_a_version_that_is_not_supported_is_refused(
    monkeypatch: pytest.MonkeyPatch, library: Library, version: str
) -> None:
    """With the range and the version, by every way in, with a strategy or without."""
    monkeypatch.setitem(library.__dict__, "version", version)
    range_ = {REDIS: "from 5.3 to below 9.0", VALKEY: "from 6.1 to below 7.0"}[library]
    message = f"{library.package}-py {range_}, and {version} is installed"
    classes = {
        REDIS: (RedisCluster, AsyncRedisCluster),
        VALKEY: (ValkeyCluster, AsyncValkeyCluster),
    }
    for cls in classes[library]:
        for strategy in ("latency_based", "round_robin", None):
            with pytest.raises(UnsupportedClientError, match=message):
                cls(**NOWHERE, load_balancing_strategy=strategy)
    client = library.cluster_clients[1](**NOWHERE)
    with pytest.raises(UnsupportedClientError, match=message):
        use_strategy(client, "latency_based")
    assert type(client) is library.cluster_clients[1]
    assert issubclass(UnsupportedClientError, LoadBalancerError)


@pytest.mark.parametrize(
    ("library", "version"),
    [(REDIS, "5.3.0"), (REDIS, "6.4.0"), (REDIS, "8.12.1rc1"), (VALKEY, "6.1.0"), (VALKEY, "6.9")],
)
def test_a_version_in_the_range_is_accepted(
    monkeypatch: pytest.MonkeyPatch, library: Library, version: str
) -> None:
    monkeypatch.setitem(library.__dict__, "version", version)
    library.check()


def test_the_installed_versions_are_known() -> None:
    assert REDIS.version == redis.__version__
    assert VALKEY.version == valkey.__version__


@pytest.mark.parametrize("cls", [ValkeyCluster, AsyncValkeyCluster])
@pytest.mark.parametrize("strategy", ["round_robin_replicas", "random", "random_replica"])
def test_what_valkey_py_cannot_do_is_refused(cls: Any, strategy: str) -> None:
    for form in (strategy, LoadBalancingStrategy(strategy)):
        with pytest.raises(ValueError, match=f"{strategy}.*valkey-py .* has only: round_robin$"):
            cls(**NOWHERE, load_balancing_strategy=form)


@pytest.mark.parametrize(
    ("strategy", "options", "expected"),
    [
        (None, {}, False),
        (None, {"read_from_replicas": True}, True),
        ("round_robin", {}, True),
        ("latency_based", {}, True),
    ],
)
def test_valkey_pys_own_option_is_what_round_robin_means(
    strategy: str | None, options: dict[str, Any], expected: bool
) -> None:
    client = AsyncValkeyCluster(**NOWHERE, load_balancing_strategy=strategy, **options)
    assert client.read_from_replicas is expected
    assert (client.load_balancer is not None) is (strategy == "latency_based")


def test_the_valkey_clients_are_valkey_pys() -> None:
    assert issubclass(ValkeyCluster, valkey.cluster.ValkeyCluster)
    assert issubclass(AsyncValkeyCluster, valkey.asyncio.cluster.ValkeyCluster)


NAMES = [
    *("AskError", "AuthenticationError", "AuthenticationWrongNumberOfArgsError"),
    *("AuthorizationError", "BusyLoadingError", "ClusterCrossSlotError", "ClusterDownError"),
    *("ConnectionError", "DataError", "InvalidResponse", "MasterDownError"),
    *("MaxConnectionsError", "MovedError", "NoScriptError", "ReadOnlyError", "ResponseError"),
    *("SlotNotCoveredError", "TimeoutError", "TryAgainError", "WatchError"),
]


@pytest.mark.parametrize("name", NAMES)
def test_an_error_means_the_same_in_both_libraries(name: str) -> None:
    message = "1 127.0.0.1:1" if name in ("AskError", "MovedError") else "message"
    outcomes = [
        outcome_of(getattr(library.exceptions, name)(message)) for library in (REDIS, VALKEY)
    ]
    assert outcomes[0] is outcomes[1]


def test_a_stand_in_is_of_the_library_that_it_is_shown_to() -> None:
    cause = VALKEY.exceptions.MasterDownError("down")
    reply = unfit_reply(cause, VALKEY)
    assert isinstance(unfit(cause), valkey.exceptions.ResponseError)
    assert isinstance(reply, valkey.exceptions.TryAgainError)
    assert not isinstance(reply, redis.ResponseError)
    assert unwrap(reply) is cause
    assert outcome_of(reply) is Outcome.FAILURE


@pytest.mark.parametrize("error", [ConnectionError("x"), TimeoutError("x")])
def test_pythons_own_errors_of_the_same_name_are_others(error: Exception) -> None:
    assert outcome_of(error) is Outcome.REDIRECT
