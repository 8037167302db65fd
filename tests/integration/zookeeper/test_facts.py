"""What the adapter takes for granted of ZooKeeper and of kazoo, asked of real servers."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from contextlib import contextmanager

import kazoo.client
import pytest
from kazoo.exceptions import NoNodeError

from bench.servers.zookeeper import ZooKeeperServers
from lb_strategies_zookeeper._handlers import ReadHandler, StampedResult

pytestmark = pytest.mark.integration


@contextmanager
def stamping_session(hosts: str) -> Iterator[kazoo.client.KazooClient]:
    handler = ReadHandler()
    session = handler.client = kazoo.client.KazooClient(hosts, handler=handler)
    session.start()
    try:
        yield session
    finally:
        session.stop()
        session.close()


def test_the_zxid_of_a_reply_is_exactly_how_far_the_server_was(
    zookeeper: ZooKeeperServers,
) -> None:
    """Reads on followers, pipelined, while the leader writes: each shows what its zxid says."""
    with stamping_session(zookeeper.leader().endpoint) as writer:
        writer.create("/counter", b"0")
        followers = [follower.endpoint for follower in zookeeper.followers]
        with stamping_session(followers[0]) as one, stamping_session(followers[1]) as two:
            one.sync("/counter")
            two.sync("/counter")
            writes: list[StampedResult] = []
            reads: list[StampedResult] = []
            for count in range(1, 1501):
                writes.append(writer.set_async("/counter", str(count).encode()))
                reads += [one.get_async("/counter"), two.get_async("/counter")]
                if count % 50 == 0:
                    writes[-1].get(timeout=10.0)
            for read in reads:
                read.get(timeout=10.0)
    zxids = [write.get(timeout=10.0).mzxid for write in writes]
    assert zxids == [write.zxid for write in writes] == sorted(zxids)
    seen = [int(read.value[0]) for read in reads]
    assert seen == [bisect.bisect_right(zxids, read.zxid) for read in reads]
    assert len(set(seen)) > 30, "the reads did not fall between the writes"


def test_the_answer_that_there_is_no_node_has_a_zxid_too(zookeeper: ZooKeeperServers) -> None:
    with stamping_session(zookeeper.followers[0].endpoint) as session:
        created = session.create_async("/node")
        created.get(timeout=10.0)
        missing = session.get_async("/missing")
        with pytest.raises(NoNodeError):
            missing.get(timeout=10.0)
        absent = session.exists_async("/missing")
        assert absent.get(timeout=10.0) is None
        assert missing.zxid == absent.zxid == session.get("/node")[1].czxid


def test_deleting_what_does_not_exist_is_a_transaction(zookeeper: ZooKeeperServers) -> None:
    """So that it can be a fence: it has a zxid of its own, which nobody else's precedes."""
    with stamping_session(zookeeper.leader().endpoint) as session:
        before = session.create_async("/node", include_data=True)
        _, stat = before.get(timeout=10.0)
        fence = session.delete_async("/missing")
        with pytest.raises(NoNodeError):
            fence.get(timeout=10.0)
        assert fence.zxid == stat.czxid + 1
