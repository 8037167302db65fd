"""A store with a leader, in memory, and a client of each kind for it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from lb_strategies import (
    AsyncConsensusRoutingMixin,
    ConsensusOptions,
    ConsensusRoutingMixin,
    FailureKind,
    LoadBalancingStrategy,
    MemberStatus,
    Operation,
    OperationClass,
    StatusRefusedError,
)

LONGEST: Final = 10.0
"""Seconds after which something that should have happened long ago has not."""
QUICK: Final = ConsensusOptions(poll_interval=0.005, poll_timeout=0.05, cold_samples=0)
RARE: Final = ConsensusOptions(poll_interval=1000.0, poll_timeout=0.05)
OPERATIONS: Final = {
    "put": Operation(OperationClass.WRITE, "put"),
    "get": Operation(OperationClass.LINEARIZABLE_READ, "get"),
}


class StoreError(Exception):
    """A member's refusal."""

    def __init__(self, kind: FailureKind) -> None:
        super().__init__(kind.value)
        self.kind = kind


@dataclass
class Answer:
    """Who answered, in which term."""

    member: Hashable
    term: int


@dataclass
class Store:
    """Members that do as they are told; all of it at once."""

    members: tuple[str, ...] = ("a", "b", "c")
    leader: str | None = "a"
    term: int = 1
    frozen: set[Hashable] = field(default_factory=set)
    """Those that answer no poll."""
    refuses: bool = False
    """Whether nobody tells who leads."""
    failures: dict[Hashable, list[BaseException]] = field(default_factory=dict)
    """What the next requests to a member end with."""
    polled: Counter[Hashable] = field(default_factory=Counter)
    asked: list[Hashable] = field(default_factory=list)
    authenticated: list[Hashable] = field(default_factory=list)
    knows_password: bool = True

    def status(self, member: Hashable) -> MemberStatus:
        """Answer a poll."""
        self.polled[member] += 1
        if member in self.frozen:
            raise TimeoutError
        if self.refuses:
            raise StatusRefusedError("permission denied")
        return MemberStatus(self.term, self.leader)

    def answer(self, member: Hashable) -> Answer:
        """Answer a request."""
        self.asked.append(member)
        if self.failures.get(member):
            raise self.failures[member].pop(0)
        return Answer(member, self.term)

    def authenticate(self, member: Hashable) -> None:
        """Give out a token."""
        self.authenticated.append(member)
        if not self.knows_password:
            raise PermissionError("wrong password")


class ThreadClient(ConsensusRoutingMixin[str, Answer]):
    """A client of the store that is used from threads."""

    def __init__(self, store: Store, options: ConsensusOptions | None = QUICK) -> None:
        self.store = store
        self.polling: Counter[Hashable] = Counter()
        self._start_routing(LoadBalancingStrategy.HYBRID, options=options)

    def _list_members(self) -> Iterable[Hashable]:
        return self.store.members

    def _classify(self, request: str) -> Operation:
        return OPERATIONS[request]

    def _classify_error(self, error: Exception, request: str) -> FailureKind:
        assert isinstance(error, StoreError)
        return error.kind

    def _read_term(self, reply: Answer) -> tuple[int | None, Hashable | None]:
        return reply.term, None

    def _probe_member(self, member: Hashable, timeout: float) -> MemberStatus:
        self.polling[member] += 1
        assert self.polling[member] == 1, "single flight"
        try:
            time.sleep(0.001)
        finally:
            self.polling[member] -= 1
        return self.store.status(member)

    def _send_to(self, member: Hashable, request: str, timeout: float | None) -> Answer:
        return self.store.answer(member)


class ThreadClientWithPassword(ThreadClient):
    """... that can authenticate."""

    def _authenticate(self, member: Hashable, timeout: float | None) -> None:
        self.store.authenticate(member)


class TaskClient(AsyncConsensusRoutingMixin[str, Answer]):
    """A client of the store that is used from tasks."""

    def __init__(self, store: Store, options: ConsensusOptions | None = QUICK) -> None:
        self.store = store
        self.polling: Counter[Hashable] = Counter()
        self._start_routing(LoadBalancingStrategy.HYBRID, options=options)

    def _list_members(self) -> Iterable[Hashable]:
        return self.store.members

    def _classify(self, request: str) -> Operation:
        return OPERATIONS[request]

    def _classify_error(self, error: Exception, request: str) -> FailureKind:
        assert isinstance(error, StoreError)
        return error.kind

    def _read_term(self, reply: Answer) -> tuple[int | None, Hashable | None]:
        return reply.term, None

    async def _probe_member(self, member: Hashable, timeout: float) -> MemberStatus:
        self.polling[member] += 1
        assert self.polling[member] == 1, "single flight"
        try:
            await asyncio.sleep(0.001)
        finally:
            self.polling[member] -= 1
        return self.store.status(member)

    async def _send_to(self, member: Hashable, request: str, timeout: float | None) -> Answer:
        await asyncio.sleep(0)
        return self.store.answer(member)


class TaskClientWithPassword(TaskClient):
    """... that can authenticate."""

    async def _authenticate(self, member: Hashable, timeout: float | None) -> None:
        self.store.authenticate(member)


class Side(ABC):
    """One kind of client behind one face, so that a test is written once."""

    client: ThreadClient | TaskClient
    store: Store

    @abstractmethod
    def open(self, options: ConsensusOptions = QUICK, *, password: bool = False) -> None:
        """Make a client of a new store."""

    @abstractmethod
    def route(self, request: str, timeout: float | None = None) -> Hashable:
        """Send a request; return who answered."""

    @abstractmethod
    def wait_for_leader(self, timeout: float = LONGEST) -> Hashable | None:
        """Wait for it."""

    @abstractmethod
    def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until it is true; fail if that takes longer than anything should."""

    @abstractmethod
    def close(self) -> None:
        """End the polls."""

    @abstractmethod
    def drop(self) -> None:
        """Forget the client without closing it."""

    @abstractmethod
    def polls(self) -> int:
        """Return how many threads or tasks poll."""

    def start_in_child(self) -> None:
        """Make ready what a forked child needs of its own."""
        self.client.polling.clear()  # the parent's polls were under way

    def refresh(self) -> None:
        """Ask for polls now, as a router does."""
        self.client._router._refresh()

    def update_members(self) -> None:
        """Have the client ask who its members are."""
        self.client._update_members()

    def in_flight(self) -> int:
        """Return how many requests are."""
        return sum(s.in_flight for s in self.client.endpoint_stats().values())

    def reachable(self) -> tuple[Hashable, ...]:
        """Return who is not out."""
        return self.client._router.tracker.reachable


class Threads(Side):
    """The synchronous client."""

    def open(self, options: ConsensusOptions = QUICK, *, password: bool = False) -> None:
        self.store = Store()
        self.client: ThreadClient = (ThreadClientWithPassword if password else ThreadClient)(
            self.store, options
        )

    def route(self, request: str, timeout: float | None = None) -> Hashable:
        return self.client._route(request, timeout).member

    def wait_for_leader(self, timeout: float = LONGEST) -> Hashable | None:
        return self.client.wait_for_leader(timeout)

    def until(self, predicate: Callable[[], bool]) -> None:
        give_up = time.monotonic() + LONGEST
        while not predicate():
            assert time.monotonic() < give_up
            time.sleep(0.002)

    def close(self) -> None:
        self.client._stop_routing()

    def drop(self) -> None:
        del self.client

    def polls(self) -> int:
        return sum(t.name.startswith("lb-poll ") for t in threading.enumerate())


class Tasks(Side):
    """The asyncio client, in a loop that runs while something waits for it."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it to its end."""
        return self.runner.run(coroutine)

    def open(self, options: ConsensusOptions = QUICK, *, password: bool = False) -> None:
        self.store = Store()
        self.client: TaskClient = (TaskClientWithPassword if password else TaskClient)(
            self.store, options
        )

    def route(self, request: str, timeout: float | None = None) -> Hashable:
        answer: Answer = self.run(self.client._route(request, timeout))
        return answer.member

    def wait_for_leader(self, timeout: float = LONGEST) -> Hashable | None:
        leader: Hashable | None = self.run(self.client.wait_for_leader(timeout))
        return leader

    def until(self, predicate: Callable[[], bool]) -> None:
        async def wait() -> None:
            give_up = time.monotonic() + LONGEST
            while not predicate():
                assert time.monotonic() < give_up
                await asyncio.sleep(0.002)

        self.run(wait())

    def update_members(self) -> None:
        async def update() -> None:
            self.client._update_members()

        self.run(update())

    def close(self) -> None:
        self.run(self.client._stop_routing())

    def drop(self) -> None:
        del self.client

    def polls(self) -> int:
        tasks = asyncio.all_tasks(self.runner.get_loop())
        return sum(task.get_name().startswith("lb-poll ") for task in tasks)

    def start_in_child(self) -> None:
        super().start_in_child()
        self.runner = asyncio.Runner()


def end(side: Side) -> None:
    """Close what a test left open."""
    if hasattr(side, "client"):
        side.close()
        side.drop()
    side.until(lambda: not side.polls())
    if isinstance(side, Tasks):
        side.runner.close()
    gc.collect()
