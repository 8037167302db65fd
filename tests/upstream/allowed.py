"""The tests of redis-py 8.1 that may fail when a strategy is forced on every client, and why."""

from __future__ import annotations

from typing import Final

_READONLY = (
    "The test's user may not send READONLY, as every client does that may read from replicas, "
    "with redis-py's own replica strategies too."
)
_UNAWARE = (
    "A replica that has not heard yet that the slot is gone answers the read that the primary "
    "refuses."
)
_SET_LATER = (
    "The test tells a finished client to read from replicas and expects that a replica was asked, "
    "while the forced policy asks the primary."
)

ALLOWED: Final[dict[str, str]] = {
    "tests/test_cluster.py::TestClusterRedisCommands::test_acl_log": _READONLY,
    "tests/test_asyncio/test_cluster.py::TestClusterRedisCommands::test_acl_log": _READONLY,
    "tests/test_cluster.py::TestRedisClusterObj::"
    "test_not_require_full_coverage_cluster_down_error": _UNAWARE,
    "tests/test_asyncio/test_cluster.py::TestRedisClusterObj::"
    "test_not_require_full_coverage_cluster_down_error": _UNAWARE,
    "tests/test_cluster.py::TestReadOnlyPipeline::"
    "test_moved_redirection_on_slave_with_default": _SET_LATER,
    "tests/test_asyncio/test_cluster.py::TestClusterPipeline::"
    "test_readonly_pipeline_from_readonly_client": _SET_LATER,
    "tests/test_asyncio/test_cluster.py::TestClusterPipeline::"
    "test_readonly_pipeline_with_reading_from_replicas_strategies": _SET_LATER,
    "tests/test_cluster.py::TestRedisClusterObj::test_handling_cluster_failover_to_a_replica": (
        "A replica answers the read that the primary refuses, so nothing makes a client that has "
        "just been made look for a failover."
    ),
    "tests/test_cluster.py::TestClusterPipeline::test_connection_error_raised": (
        "A replica answers the reads of the pipeline that the primary refuses."
    ),
    "tests/test_cluster.py::TestRedisClusterObj::"
    "test_timeout_error_topology_refresh_reuse_connections": (
        "Its mock times out without closing the connection, as a real time-out would, and after "
        "another order of refreshes the reply that was left is read for that of the GET."
    ),
    "tests/test_asyncio/test_cluster.py::TestRedisClusterObj::test_ask_redirection": (
        "Its mock stands for a node's execute_command, while ours sends ASKING and the command "
        "together, as a pipeline, so that they share a connection."
    ),
    "tests/test_asyncio/test_cluster.py::TestClusterConnectionErrorHandling::"
    "test_connection_error_handles_node_connections": (
        "It expects redis-py's own method to cut the idle connections; ours takes each out of the "
        "pool meanwhile and calls another."
    ),
    "tests/test_asyncio/test_cluster.py::TestClusterPipeline::test_cluster_down_error": (
        "Its mock raises before the reply has been read and counts on it that redis-py then cuts "
        "every connection, other tasks' too, which ours does not."
    ),
}
"""A sentence for each, by the test's name without its parameters."""
