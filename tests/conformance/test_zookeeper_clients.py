"""ZooKeeper's client for event loops offers what the one for threads offers."""

from __future__ import annotations

import inspect
from typing import Any

import kazoo.client
import pytest

import lb_strategies_zookeeper
from lb_strategies_zookeeper import AsyncKazooClient, KazooClient
from lb_strategies_zookeeper._locks_aio import AsyncLock, AsyncReadLock, AsyncWriteLock

NO_INPUT_OR_OUTPUT = {
    "Lock",
    "ReadLock",
    "WriteLock",
    "add_listener",
    "endpoint_stats",
    "remove_listener",
    "transaction",
    "unchroot",
    "with_options",
}
"""What is not awaited."""
IN_THREADS_ONLY = {
    "Barrier",
    "ChildrenWatch",
    "Counter",
    "DataWatch",
    "DoubleBarrier",
    "Election",
    "LockingQueue",
    "MultiNonBlockingLease",
    "NonBlockingLease",
    "Party",
    "Queue",
    "Semaphore",
    "SetPartitioner",
    "ShallowParty",
}
"""Recipes, which `sync_client` has."""
LOCKS = {"Lock": AsyncLock, "ReadLock": AsyncReadLock, "WriteLock": AsyncWriteLock}
CONFIGURATION = {
    "auth_data",
    "ca",
    "certfile",
    "check_hostname",
    "handler",
    "keyfile",
    "keyfile_password",
    "last_zxid",
    "logger",
    "randomize_hosts",
    "read_only",
    "state_listeners",
    "use_ssl",
    "verify_certs",
}
"""Attributes that nobody but kazoo needs, and `sync_client` has."""


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default of each parameter but ``self``."""
    signature = inspect.signature(function)
    found = [(p.name, p.kind, p.default) for p in signature.parameters.values()]
    return [parameter for parameter in found if parameter[0] != "self"]


METHODS = sorted(
    name
    for name in public(KazooClient)
    if callable(getattr(KazooClient, name)) and not name.endswith("_async")
)


def test_the_package_offers_both() -> None:
    assert {"AsyncKazooClient", "KazooClient"} <= set(lb_strategies_zookeeper.__all__)


def test_each_public_name_of_the_one_is_one_of_the_other() -> None:
    ours, theirs = public(AsyncKazooClient("zk1:1")), public(KazooClient("zk1:1"))
    expected = {name for name in theirs if not name.endswith("_async")}
    assert IN_THREADS_ONLY <= expected - ours <= IN_THREADS_ONLY | CONFIGURATION
    assert ours - expected == {"sync_client"}


def test_the_constructors_take_the_same() -> None:
    assert parameters(AsyncKazooClient.__init__) == parameters(KazooClient.__init__)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_same_parameters_and_is_awaited(name: str) -> None:
    ours, theirs = getattr(AsyncKazooClient, name), getattr(KazooClient, name)
    assert parameters(ours) == parameters(theirs)
    assert inspect.iscoroutinefunction(ours) == (name not in NO_INPUT_OR_OUTPUT)


@pytest.mark.parametrize("name", ["add_auth", "create", "ensure_path", "reconfig", "set"])
def test_kazoo_has_these_parameters_too(name: str) -> None:
    assert parameters(getattr(AsyncKazooClient, name)) == parameters(
        getattr(kazoo.client.KazooClient, name)
    )


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_a_lock_is_one_of_kazoos_that_is_awaited(name: str) -> None:
    sync = KazooClient("zk1:1")
    theirs = getattr(sync, name)("/lock", "somebody", ["pattern"])
    ours = getattr(AsyncKazooClient("zk1:1"), name)("/lock", "somebody", ["pattern"])
    assert type(ours) is LOCKS[name]
    assert parameters(getattr(AsyncKazooClient, name)) == [
        parameter for parameter in parameters(type(theirs)) if parameter[0] != "client"
    ]
    for method in ("acquire", "release", "contenders"):
        assert inspect.iscoroutinefunction(getattr(ours, method))
        assert parameters(getattr(ours, method)) == parameters(getattr(theirs, method))
    ours.cancel()
    assert (ours.path, ours.data, ours.is_acquired) == (theirs.path, theirs.data, False)
    for node in ("x__lock__0000000003", "x__rlock__0000000003", "xpattern0000000003", "x"):
        ours_excluded = bool(ours._excluded.search(node))
        assert ours_excluded == bool(theirs._contenders_re.search(node))
    assert ours._NODE_NAME == theirs._NODE_NAME


def test_what_transactions_are_built_of_is_kazoos() -> None:
    transaction = AsyncKazooClient("zk1:1").transaction()
    assert isinstance(transaction, kazoo.client.TransactionRequest)
    assert inspect.iscoroutinefunction(transaction.commit)


def test_without_a_strategy_there_is_nothing_to_tell() -> None:
    client = AsyncKazooClient("zk1:1", strategy=None)
    assert client.leader is None
    assert client.leader_term == -1
    assert client.session_endpoint is None
    assert not hasattr(client, "load_balancer")
    assert client.endpoint_stats() == {}
    assert client.client_id is None
    assert not client.connected


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="round_robin"):
        AsyncKazooClient(strategy="fastest")
    with pytest.raises(TypeError):
        AsyncKazooClient(no_such_argument=1)
    with pytest.raises(ValueError, match="causal"):
        AsyncKazooClient(read_consistency="sometimes")
