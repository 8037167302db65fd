"""Which versions of kazoo are supported."""

import kazoo.client
import pytest

from lb_strategies_zookeeper import UnsupportedClientError
from lb_strategies_zookeeper._library import check_version, missing_parts


@pytest.mark.parametrize("version", ["2.9.0", "2.11.0", "2.12.0rc1"])
def test_supported_versions(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["2.8.0", "1.3.1", "3.0.0", "0"])
def test_the_error_names_the_range_and_what_is_installed(version: str) -> None:
    with pytest.raises(UnsupportedClientError, match=rf"2\.9 to below 3\.0, and {version}"):
        check_version(version)


def test_all_parts_are_there() -> None:
    assert missing_parts(kazoo.client.KazooClient()) == []


def test_parts_that_are_missing_are_named() -> None:
    client = kazoo.client.KazooClient()
    del client._pending
    client._queue = []
    assert missing_parts(client) == ["_queue", "_pending"]
