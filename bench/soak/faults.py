"""What happens to the servers: a random fault every few seconds, and its end.

Each fault is a generator that yields the seconds until it wants to go on, so that one thread, the
one that starts the servers, carries out several at once. At most one befalls the servers of a
shard at a time; a delay goes with anything.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any, TypeAlias, cast

import redis

from bench.proxy import FaultProxy
from bench.servers.redis import RedisClusterServers, RedisNode, ports_in_slots
from bench.soak.log import FaultLog

Fault: TypeAlias = Generator[float, None, None]

SHARDS = range(2)
NODE_TIMEOUT = 5.0
"""Seconds after which the cluster declares a silent server failed; no fault is as long."""
BETWEEN_VOTES = 2 * NODE_TIMEOUT + 1.0
"""Seconds between two failovers of a shard: before that the primaries give no vote."""
POLL = 0.05
PATIENCE = 40.0
"""Seconds that the servers may take to get over a fault."""


class Faults:
    """Carries out faults on two shards.

    Args:
        servers: Two primaries, each with two replicas or more.
        proxies: In front of some of the servers.
        slots: Those that may be moved, and the shard that serves each; kept up to date.
        seed: Decides which fault comes next, where, and for how long.
    """

    def __init__(
        self,
        servers: RedisClusterServers,
        proxies: Sequence[FaultProxy],
        slots: dict[int, int],
        *,
        seed: int,
    ) -> None:
        self.log = FaultLog(slots.__getitem__)
        self._rng = random.Random(f"{seed} faults")
        self._proxies = proxies
        self._slots = slots
        count = len(servers.replicas) // len(SHARDS)
        self._shards = [
            [servers.primaries[shard], *servers.replicas[shard * count : (shard + 1) * count]]
            for shard in SHARDS
        ]
        self._primaries = list(servers.primaries)
        self._busy: set[int] = set()
        self._voted_at = [float("-inf") for _ in SHARDS]
        self._running: list[tuple[float, Fault]] = []
        self._deck: list[str] = []
        self._kinds: dict[str, tuple[Callable[[int], Fault], Callable[[int], bool]]] = {
            "replica paused": (self._pause_replica, self._is_free),
            "primary paused": (self._pause_primary, self._is_free),
            "shard paused": (self._pause_shard, self._is_free),
            "replica killed": (self._kill_replica, self._is_free),
            "failover": (self._fail_over, self._may_vote),
            "slot moved": (self._move_slot, self._are_free),
            "delay": (self._delay, lambda shard: True),
        }

    def run(self, seconds: float, interval: float, show: Callable[[str], None]) -> None:
        """Begin a fault every `interval` seconds; return when all are over.

        Args:
            seconds: No fault begins later.
            interval: Seconds between the beginnings of two faults.
            show: Is told of each.
        """
        now = time.monotonic()
        end, due = now + seconds, now + interval / 2
        try:
            while self._running or now < end:
                if due <= now < end:
                    due += interval
                    show(self._begin())
                self._advance()
                time.sleep(POLL / 2)
                now = time.monotonic()
        finally:
            for _, fault in self._running:
                fault.close()
            self._running.clear()

    def _begin(self) -> str:
        """Begin the next fault that can be had now; each kind comes once in a round."""
        if not self._deck:
            self._deck = self._rng.sample(list(self._kinds), len(self._kinds))
        for kind in self._deck:
            make, may = self._kinds[kind]
            for shard in self._rng.sample(SHARDS, len(SHARDS)):
                if may(shard):
                    self._deck.remove(kind)
                    self._running.append((0.0, make(shard)))
                    return f"{kind}, shard {shard}"
        return "no fault: every shard is busy with one"

    def _advance(self) -> None:
        """Let every fault that is due go on."""
        now = time.monotonic()
        running, self._running = self._running, []
        for i, (due, fault) in enumerate(running):
            try:
                self._running.append((now + next(fault), fault) if due <= now else (due, fault))
            except StopIteration:
                continue
            except BaseException:
                self._running += running[i + 1 :]  # for `run` to end
                raise

    def _is_free(self, shard: int) -> bool:
        return shard not in self._busy

    def _are_free(self, _: int) -> bool:
        return not self._busy

    def _may_vote(self, shard: int) -> bool:
        return self._is_free(shard) and time.monotonic() - self._voted_at[shard] > BETWEEN_VOTES

    def _replicas(self, shard: int) -> list[RedisNode]:
        return [node for node in self._shards[shard] if node is not self._primaries[shard]]

    def _pause_replica(self, shard: int) -> Fault:
        node = self._rng.choice(self._replicas(shard))
        with self._taking(shard), self.log.window("replica paused"):
            yield from self._pause([node])

    def _pause_primary(self, shard: int) -> Fault:
        with self._taking(shard), self.log.window("primary paused", no_writes=[shard]):
            yield from self._pause([self._primaries[shard]])

    def _pause_shard(self, shard: int) -> Fault:
        window = self.log.window("shard paused", no_reads=[shard], no_writes=[shard])
        with self._taking(shard), window:
            yield from self._pause(self._shards[shard])

    def _pause(self, nodes: Collection[RedisNode]) -> Fault:
        try:
            for node in nodes:
                node.pause()
            yield self._rng.uniform(0.3, 2.5)
        finally:
            for node in nodes:
                node.resume()
        yield from _until(lambda: all(node.ask("PING") for node in nodes), "all answer again")

    def _kill_replica(self, shard: int) -> Fault:
        node = self._rng.choice(self._replicas(shard))
        with self._taking(shard), self.log.window("replica killed"):
            try:
                node.kill()
                yield self._rng.uniform(0.3, 3.0)
            finally:
                node.restart()
            # A restart takes the short time-out of the configuration file.
            node.ask("CONFIG", "SET", "cluster-node-timeout", round(NODE_TIMEOUT * 1000))
            yield from self._until_in_step(shard)

    def _fail_over(self, shard: int) -> Fault:
        before = self._primaries[shard]
        after = self._rng.choice(self._replicas(shard))

        def is_done() -> bool:
            if _replication(after)["role"] == "master" != _replication(before)["role"]:
                return True
            with contextlib.suppress(redis.ResponseError):  # it is under way
                after.ask("CLUSTER", "FAILOVER")
            return False

        with self._taking(shard), self.log.window("failover", no_writes=[shard]):
            yield from _until(is_done, "the failover is done")
            self._primaries[shard] = after
            self._voted_at[shard] = time.monotonic()
            yield from self._until_in_step(shard)

    def _move_slot(self, _: int) -> Fault:
        slot = self._rng.choice(sorted(self._slots))
        source = self._primaries[self._slots[slot]]
        target = self._primaries[1 - self._slots[slot]]
        nodes = [node for shard in self._shards for node in shard]
        with self._taking(*SHARDS), self.log.window("slot moved", moving=[slot]):
            target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", _node_id(source))
            source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", _node_id(target))
            while keys := cast("list[str]", source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1)):
                source.ask("MIGRATE", target.host, target.port, keys[0], 0, 5000)
                yield self._rng.uniform(0.0, 0.4)
            for node in (target, source):
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", _node_id(target))
            self._slots[slot] = 1 - self._slots[slot]
            yield from _until(
                lambda: all(_port_serving(slot, node) == target.port for node in nodes),
                "every server knows where the slot is",
            )
            for shard in SHARDS:
                yield from self._until_in_step(shard)

    def _delay(self, _: int) -> Fault:
        proxy = self._rng.choice(self._proxies)
        delay = self._rng.uniform(0.02, 0.2)
        with self.log.window("delay"):
            proxy.delay(delay, jitter=delay / 4)
            try:
                yield self._rng.uniform(2.0, 8.0)
            finally:
                proxy.undo()

    @contextlib.contextmanager
    def _taking(self, *shards: int) -> Iterator[None]:
        self._busy.update(shards)
        try:
            yield
        finally:
            self._busy.difference_update(shards)

    def _until_in_step(self, shard: int) -> Fault:
        """Wait until every replica of a shard has what its primary has now, and is listed."""
        primary = self._primaries[shard]
        offset = _replication(primary)["master_repl_offset"]
        ports = {node.port for node in self._shards[shard]}

        def are_in_step() -> bool:
            replicas = [_replication(node) for node in self._replicas(shard)]
            return (
                all(info["master_port"] == primary.port for info in replicas)
                and all(info["master_link_status"] == "up" for info in replicas)
                and all(info["slave_repl_offset"] >= offset for info in replicas)
                and all(ports <= ports_in_slots(node) for node in self._shards[shard])
            )

        yield from _until(are_in_step, f"the replicas of shard {shard} are in step")


def _until(condition: Callable[[], bool], what: str) -> Fault:
    """Wait for a condition; a server that is not quite up yet does not fulfil it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"not so within {PATIENCE:g} s: {what}")
        yield POLL


def _replication(node: RedisNode) -> dict[str, Any]:
    with node.client() as client:
        return cast("dict[str, Any]", client.info("replication"))


def _node_id(node: RedisNode) -> str:
    return str(node.ask("CLUSTER", "MYID"))


def _port_serving(slot: int, node: RedisNode) -> int:
    spans = cast("list[Any]", node.ask("CLUSTER", "SLOTS"))
    return int(next(span[2][1] for span in spans if span[0] <= slot <= span[1]))
