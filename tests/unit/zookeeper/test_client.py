"""Clients that never connect: arguments, and what is kazoo's own."""

import logging
from typing import Any

import kazoo.client
import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from lb_strategies import LoadBalancingStrategy
from lb_strategies_zookeeper import KazooClient, _library

READS = ("get", "exists", "get_children", "get_acls")


def test_without_a_strategy_everything_is_kazoos_own() -> None:
    client = KazooClient("zk1:1,zk2:2/app", strategy=None, randomize_hosts=False)
    for name in (*READS, *(f"{name}_async" for name in READS)):
        method: Any = getattr(client, name)
        client_of_kazoo: Any = kazoo.client.KazooClient
        assert method.__func__ is getattr(client_of_kazoo, name)
    assert type(client.handler) is SequentialThreadingHandler
    assert "_call" not in vars(client)
    assert client.state_listeners == set()
    client.add_listener(print)
    assert client.state_listeners == {print}
    client.remove_listener(print)
    assert client.state_listeners == set()
    assert client.leader is None
    assert client.leader_term == -1
    assert client.session_endpoint is None
    assert not hasattr(client, "load_balancer")
    assert client.endpoint_stats() == {}
    assert client._conn_retry.max_tries == kazoo.client.KazooClient()._conn_retry.max_tries
    client.set_hosts("zk3:3/app")
    client.start_async()
    client.stop()
    client.close()


def test_it_is_a_client_of_kazoos_with_more_to_tell() -> None:
    client = KazooClient("zk1:1,zk2:2/app")
    assert isinstance(client, kazoo.client.KazooClient)
    assert client.chroot == "/app"
    assert client._conn_retry.max_tries == -1
    assert client.leader is None
    assert client.leader_term == -1
    assert client.load_balancer.strategy is LoadBalancingStrategy.HYBRID
    assert list(client.endpoint_stats()) == ["zk1:1", "zk2:2"]


def test_the_users_own_retries_are_kept() -> None:
    client = KazooClient("zk1:1", connection_retry={"max_tries": 7})
    assert client._conn_retry.max_tries == 7


def test_other_servers_take_the_place_of_those_before() -> None:
    client = KazooClient("zk1:1,zk2:2")
    client.set_hosts("zk2:2,zk3:3")
    assert list(client.endpoint_stats()) == ["zk2:2", "zk3:3"]
    assert client.hosts == [("zk2", 2), ("zk3", 3)]


def test_kazoos_own_code_gets_kazoos_own_reads() -> None:
    client: Any = KazooClient("zk1:1")
    namespace = {"__name__": "kazoo.recipe.lock", "client": client}
    for name in (*READS, *(f"{name}_async" for name in READS)):
        own = getattr(kazoo.client.KazooClient, name)
        assert eval(f"client.{name}.__func__", namespace) is own
        assert eval(f"getattr(client, '{name}').__func__", namespace) is own
        assert getattr(client, name).__func__ is not own
        assert getattr(KazooClient, name).__doc__ == own.__doc__


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"strategy": "fastest"}, ValueError, "unknown load balancing strategy"),
        ({"read_consistency": "eventual"}, ValueError, "unknown read consistency"),
        ({"options": {}}, TypeError, "options must be a ConsensusOptions"),
        ({"handler": object()}, TypeError, "strategy=None"),
        ({"surprise": 1}, TypeError, "surprise"),
        ({"hosts": ""}, ValueError, "bad hostname"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        KazooClient(**arguments)


def test_kazoos_own_handler_for_threads_is_accepted() -> None:
    KazooClient("zk1:1", handler=SequentialThreadingHandler())


def test_a_kazoo_with_other_inner_parts_is_left_alone_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lb_strategies_zookeeper.client.missing_parts", lambda client: ["_queue"])
    with caplog.at_level(logging.WARNING, "lb_strategies"):
        client = KazooClient("zk1:1,zk2:2")
    assert "no _queue, so the client stays with one server" in caplog.text
    assert not hasattr(client, "load_balancer")
    assert "_call" not in vars(client)


def test_an_unsupported_kazoo_is_refused_when_a_client_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> None:
        _library.check_version("1.0")

    monkeypatch.setattr("lb_strategies_zookeeper.client.check_version", check)
    with pytest.raises(_library.UnsupportedClientError, match=r"1\.0 is installed"):
        KazooClient("zk1:1")
