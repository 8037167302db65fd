"""The tests of redis-py 8.1 that may fail when a strategy is forced on every client, and why.

Each reason was checked: what depends on the node that is asked passes with the policy that takes
the primary, and fails again and again with one that takes a replica.
"""

from __future__ import annotations

from typing import Final

_SYNC: Final = "tests/test_cluster.py::"
_ASYNCIO: Final = "tests/test_asyncio/test_cluster.py::"

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
    "while the forced policy asks the primary, or may do so."
)
_OWN_WRITE = (
    "It reads in a pipeline what the same pipeline writes; a replica that answers does not have "
    "it yet, with redis-py's own replica strategies too."
)
_WATCHES_PRIMARY = "It looks for the read on the primary, while a replica may have answered."
_MOCKS_PRIMARY = "Its mock stands for the primary, while a replica may answer the read."

_EITHER: Final[dict[str, str]] = {
    f"{_SYNC}TestClusterRedisCommands::test_acl_log": _READONLY,
    f"{_ASYNCIO}TestClusterRedisCommands::test_acl_log": _READONLY,
    f"{_SYNC}TestRedisClusterObj::test_not_require_full_coverage_cluster_down_error": _UNAWARE,
    f"{_ASYNCIO}TestRedisClusterObj::test_not_require_full_coverage_cluster_down_error": _UNAWARE,
    f"{_ASYNCIO}TestClusterPipeline::test_readonly_pipeline_from_readonly_client": _SET_LATER,
    f"{_ASYNCIO}TestClusterPipeline::"
    "test_readonly_pipeline_with_reading_from_replicas_strategies": _SET_LATER,
    f"{_SYNC}TestRedisClusterObj::test_handling_cluster_failover_to_a_replica": (
        "A replica answers the read that the primary refuses, so nothing makes a client that has "
        "just been made look for a failover."
    ),
    f"{_SYNC}TestClusterPipeline::test_connection_error_raised": (
        "A replica answers the reads of the pipeline that the primary refuses."
    ),
    f"{_SYNC}TestRedisClusterObj::test_timeout_error_topology_refresh_reuse_connections": (
        "Its mock times out without closing the connection, as a real time-out would, and after "
        "another order of refreshes the reply that was left is read for that of the GET."
    ),
    f"{_ASYNCIO}TestRedisClusterObj::test_ask_redirection": (
        "Its mock stands for a node's execute_command, while ours sends ASKING and the command "
        "together, as a pipeline, so that they share a connection."
    ),
    f"{_ASYNCIO}TestClusterConnectionErrorHandling::"
    "test_connection_error_handles_node_connections": (
        "It expects redis-py's own method to cut the idle connections; ours takes each out of the "
        "pool meanwhile and calls another."
    ),
    f"{_ASYNCIO}TestClusterPipeline::test_cluster_down_error": (
        "It counts requests. Ours sends a read that one node answers with CLUSTERDOWN to the other "
        "too, and reads the topology again after each: 17 GET and 17 CLUSTER SLOTS, not 11 and 10."
    ),
}

_PRIMARY: Final[dict[str, str]] = {
    f"{_SYNC}TestReadOnlyPipeline::test_moved_redirection_on_slave_with_default": _SET_LATER,
}

_LATENCY_BASED: Final[dict[str, str]] = {
    f"{_SYNC}TestReadOnlyPipeline::test_moved_redirection_on_slave_with_default": (
        "It expects that one of two reads goes to the replica, which redirects it; ours sends "
        "both to one node, so there are two redirects, or none."
    ),
    f"{_SYNC}TestClusterPipeline::test_redis_cluster_pipeline": _OWN_WRITE,
    f"{_ASYNCIO}TestClusterPipeline::test_redis_cluster_pipeline": _OWN_WRITE,
    f"{_ASYNCIO}TestClusterPipeline::"
    "test_cluster_pipeline_execution_zero_cluster_err_retries": _OWN_WRITE,
    f"{_ASYNCIO}TestClusterPipeline::test_multi_key_operation_with_a_single_slot": _OWN_WRITE,
    f"{_ASYNCIO}TestClusterPipeline::test_multi_key_operation_with_multi_slots": _OWN_WRITE,
    f"{_ASYNCIO}TestClusterPipeline::test_can_run_concurrent_pipelines": _OWN_WRITE,
    f"{_SYNC}TestClusterPipeline::test_connection_error_not_raised": _MOCKS_PRIMARY,
    f"{_SYNC}TestClusterPipeline::test_asking_error": _MOCKS_PRIMARY,
    f"{_ASYNCIO}TestClusterPipeline::test_asking_error": _MOCKS_PRIMARY,
    f"{_SYNC}TestClusterMonitor::test_wait_command_not_found": _WATCHES_PRIMARY,
    f"{_SYNC}TestClusterMonitor::test_command_with_quoted_key": _WATCHES_PRIMARY,
    f"{_SYNC}TestClusterMonitor::test_command_with_binary_data": _WATCHES_PRIMARY,
    f"{_SYNC}TestClusterMonitor::test_command_with_escaped_data": _WATCHES_PRIMARY,
    f"{_SYNC}TestClusterRedisCommands::test_slowlog_get": _WATCHES_PRIMARY,
    f"{_ASYNCIO}TestClusterRedisCommands::test_slowlog_get": _WATCHES_PRIMARY,
}

ALLOWED: Final[dict[str, dict[str, str]]] = {
    "primary": {**_EITHER, **_PRIMARY},
    "latency_based": {**_EITHER, **_LATENCY_BASED},
}
"""By mode, a sentence for each, by the test's name without its parameters."""
