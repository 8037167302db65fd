"""A writer whose every attempt can be found again in ZooKeeper, and what came of each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import kazoo.client
from kazoo.exceptions import KazooException


class Writer:
    """Writes with one client until it is stopped, in a thread of its own.

    Each attempt makes a node with a value of its own, under a name that ZooKeeper chooses, and
    sets a node that nobody else sets, whose version counts what was executed.

    Args:
        client: to write with; the nodes are made before the faults begin.
        root: where.
        every: seconds from the beginning of one attempt to the next.
    """

    def __init__(self, client: kazoo.client.KazooClient, root: str, every: float = 0.05) -> None:
        self._client = client
        self._root = root
        self._every = every
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.created: list[int] = []
        """The counts whose node was acknowledged."""
        self.times: list[float] = []
        """When something was acknowledged, ``time.monotonic()``."""
        self.errors: list[tuple[float, str]] = []
        self.sets = 0
        """How many times setting was acknowledged."""
        self.uncertain_sets = 0
        client.create(f"{root}/log", makepath=True)
        client.create(f"{root}/counter")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60.0)
        assert not self._thread.is_alive()

    def longest_gap(self) -> float:
        """Return the longest time without an acknowledgement, in seconds."""
        return max(b - a for a, b in zip(self.times, self.times[1:], strict=False))

    def first_after(self, when: float) -> float:
        """Return how long after `when` something was acknowledged that began after it."""
        return min(t for t in self.times if t > when + 2 * self._every) - when

    def check(self, client: Any) -> None:
        """Check that all that was acknowledged is there, and nothing twice."""
        client.sync(self._root)
        names = client.get_children(f"{self._root}/log")
        found = Counter(int(client.get(f"{self._root}/log/{name}")[0]) for name in names)
        assert not set(self.created) - set(found), "an acknowledged write is missing"
        assert set(found.values()) <= {1}, "a write was executed twice"
        version = client.get(f"{self._root}/counter")[1].version
        assert self.sets <= version <= self.sets + self.uncertain_sets

    def _write(self) -> None:
        count = 0
        while not self._is_over.is_set():
            began = time.monotonic()
            count += 1
            try:
                value = str(count).encode()
                self._client.create(f"{self._root}/log/n-", value, sequence=True)
                self.created.append(count)
                self.times.append(time.monotonic())
                try:
                    self._client.set(f"{self._root}/counter", value)
                except KazooException:
                    self.uncertain_sets += 1
                    raise
                self.sets += 1
            except KazooException as error:
                self.errors.append((began, type(error).__name__))
            self._is_over.wait(max(0.0, began + self._every - time.monotonic()))
