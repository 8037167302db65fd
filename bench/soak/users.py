"""The users of the store: threads with a synchronous client, tasks with an asyncio one.

Each does one operation after another, with short pauses, until it is told to stop, and judges
every answer. What each does is decided by the same plan, so both clients meet the same load.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Literal, TypeAlias

from redis.crc import key_slot

from bench.soak.history import History
from bench.soak.log import FaultLog

Method: TypeAlias = Literal["get", "set", "reads", "mixed", "mget"]
METHODS: Sequence[Method] = ("get", "set", "reads", "mixed", "mget")
WEIGHTS = (70, 10, 10, 5, 5)
SEVERAL = 8
PAUSE = 0.03
"""Seconds, the longest between two operations of a user."""
IMPATIENT = 0.1
"""Part of the tasks' operations that are given up after at most `PATIENCE` seconds."""
PATIENCE = 0.05
KEPT_PROBLEMS = 20
GAVE_UP = "TTL exhausted"
"""What redis-py says when a command was told 16 times to try again or elsewhere."""

OUTCOMES = ("answered", "cancelled", "unavoidable", "missing", "wrong", "defect")


@dataclass
class Tally:
    """What the users of one client met.

    Attributes:
        outcomes: Operations by fault and outcome.
        methods: Operations by method.
        errors: Errors by outcome and type.
        problems: The first wrong answers and defects.
        milliseconds: Single reads by latency, rounded to two digits, for percentiles.
    """

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    methods: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    milliseconds: Counter[float] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add what one user met."""
        self.outcomes += other.outcomes
        self.methods += other.methods
        self.errors += other.errors
        self.milliseconds += other.milliseconds
        self.problems += other.problems[: KEPT_PROBLEMS - len(self.problems)]

    def count(self, outcome: str) -> int:
        """Return how many operations had this outcome."""
        return sum(n for (_, each), n in self.outcomes.items() if each == outcome)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a user does next.

    Attributes:
        method: How.
        writes: Keys and the values to write to them; at most one.
        reads: The keys to read.
    """

    method: Method
    writes: list[tuple[str, str]]
    reads: list[str]


class User:
    """Plans the operations of one worker and judges their answers.

    Args:
        name: Unlike that of any other user.
        keys: That are read.
        own: Those of them that this user, and nobody else, writes.
        history: Of all keys.
        log: Of the faults.
        seed: Decides what it does.
    """

    def __init__(
        self,
        name: str,
        keys: Sequence[str],
        own: Sequence[str],
        history: History,
        log: FaultLog,
        *,
        seed: int,
    ) -> None:
        self.rng = random.Random(f"{seed} {name}")
        self.tally = Tally()
        self._name = name
        self._keys = keys
        self._own = own
        self._history = history
        self._log = log

    def plan(self) -> Operation:
        """Return what to do next."""
        [method] = self.rng.choices(METHODS, WEIGHTS)
        writes = []
        if method in ("set", "mixed"):
            key = self.rng.choice(self._own)
            writes.append((key, self._history.next(key)))
        count = {"get": 1, "set": 0}.get(method, SEVERAL)
        return Operation(method, writes, self.rng.sample(self._keys, count))

    def judge(self, operation: Operation, started: float, results: Sequence[Any]) -> None:
        """Count an operation that was answered: `results` are what it read."""
        ended = time.monotonic()
        verdicts = {"right"}
        for key, value in zip(operation.reads, results, strict=True):
            verdict: str = self._history.verdict(key, value)
            slot = key_slot(key.encode())
            if verdict == "missing" and not self._log.excuses_missing(slot, started, ended):
                verdict = "wrong"
            if verdict == "wrong":
                self._note(f"{key} has the value {value!r}", operation, started, ended)
            verdicts.add(verdict)
        worst = next((v for v in ("wrong", "missing") if v in verdicts), "answered")
        self._count(operation, worst, started, ended)
        if operation.method == "get":
            self.tally.milliseconds[float(f"{(ended - started) * 1000:.2g}")] += 1

    def fail(self, operation: Operation, started: float, error: BaseException) -> None:
        """Count an operation that ended with an error."""
        ended = time.monotonic()
        keys = [*operation.reads, *(key for key, _ in operation.writes)]
        slots = [key_slot(key.encode()) for key in keys]
        is_write = bool(operation.writes)
        excused = self._log.excuses_error(slots, started, ended, write=is_write) or (
            operation.method == "mget"  # all others have a command for each key
            and GAVE_UP in str(error)
            and self._log.excuses_refusal(slots, started, ended)
        )
        outcome = "unavoidable" if excused else "defect"
        self.tally.errors[outcome, type(error).__name__] += 1
        if not excused:
            self._note(f"{type(error).__name__}: {error}", operation, started, ended)
        self._count(operation, outcome, started, ended)

    def give_up(self, operation: Operation, started: float) -> None:
        """Count an operation that was cancelled."""
        self._count(operation, "cancelled", started, time.monotonic())

    def _count(self, operation: Operation, outcome: str, started: float, ended: float) -> None:
        self.tally.outcomes[self._log.kind_between(started, ended), outcome] += 1
        self.tally.methods[operation.method] += 1

    def _note(self, what: str, operation: Operation, started: float, ended: float) -> None:
        if len(self.tally.problems) < KEPT_PROBLEMS:
            fault = self._log.kind_between(started, ended)
            took = f"after {ended - started:.3f} s"
            self.tally.problems.append(f"{self._name}, {operation.method}, {fault}, {took}: {what}")


def use_threads(client: Any, users: Sequence[User], done: Event) -> None:
    """Let every user work in a thread until `done`."""

    def work(user: User) -> None:
        while not done.is_set():
            operation = user.plan()
            started = time.monotonic()
            try:
                results = _call(client, operation)
            except Exception as error:
                user.fail(operation, started, error)
            else:
                user.judge(operation, started, results)
            time.sleep(user.rng.uniform(0.0, PAUSE))

    with ThreadPoolExecutor(len(users)) as threads:
        list(threads.map(work, users))


def _call(client: Any, operation: Operation) -> Sequence[Any]:
    """Carry out an operation; return what it read."""
    match operation.method:
        case "get":
            return [client.get(operation.reads[0])]
        case "set":
            client.set(*operation.writes[0])
            return []
        case "mget":
            results: Sequence[Any] = client.mget_nonatomic(operation.reads)
            return results
    with client.pipeline() as pipe:
        _fill(pipe, operation)
        return list(pipe.execute()[-SEVERAL:])


async def use_tasks(client: Any, users: Sequence[User], done: Event) -> None:
    """Let every user work in a task until `done`."""

    async def work(user: User) -> None:
        while not done.is_set():
            operation = user.plan()
            impatient = user.rng.random() < IMPATIENT
            started = time.monotonic()
            try:
                async with asyncio.timeout(
                    user.rng.uniform(0.001, PATIENCE) if impatient else None
                ):
                    results = await _call_async(client, operation)
            except Exception as error:
                if impatient and isinstance(error, TimeoutError):  # redis-py's own is another
                    user.give_up(operation, started)
                else:
                    user.fail(operation, started, error)
            else:
                user.judge(operation, started, results)
            await asyncio.sleep(user.rng.uniform(0.0, PAUSE))

    await asyncio.gather(*map(work, users))


async def _call_async(client: Any, operation: Operation) -> Sequence[Any]:
    """Carry out an operation; return what it read."""
    match operation.method:
        case "get":
            return [await client.get(operation.reads[0])]
        case "set":
            await client.set(*operation.writes[0])
            return []
        case "mget":
            results: Sequence[Any] = await client.mget_nonatomic(operation.reads)
            return results
    async with client.pipeline() as pipe:
        _fill(pipe, operation)
        return list((await pipe.execute())[-SEVERAL:])


def _fill(pipe: Any, operation: Operation) -> None:
    for key, value in operation.writes:
        pipe.set(key, value)
    for key in operation.reads:
        pipe.get(key)
