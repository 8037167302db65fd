"""What the workers ask of etcd: linearizable reads and writes of random keys."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.etcd.messages import PutRequest, RangeRequest
from bench.workload import Kind

KEYS: Final = 1000
VALUE_SIZE: Final = 256


@dataclass(frozen=True, slots=True)
class Request:
    """One call, made once and sent many times.

    Attributes:
        kind: A put is a write, a range a read.
        method: As reported.
        message: What is sent.
    """

    kind: Kind
    method: str
    message: Any


@dataclass(frozen=True, slots=True)
class Workload:
    """Reads and writes, each drawn with equal chances.

    Attributes:
        read_part: Chance of a read, 0 .. 1.
        reads: One of them is drawn.
        writes: One of them is drawn; none are needed if all is read.
    """

    read_part: float
    reads: Sequence[Request]
    writes: Sequence[Request] = ()

    def draw(self, rng: random.Random) -> Request:
        """Return what a worker does next."""
        is_read = rng.random() < self.read_part
        return rng.choice(self.reads if is_read else self.writes)


def key(number: int) -> bytes:
    """Return the key of that number; their order is that of the numbers."""
    return b"key:%06d" % number


def puts() -> list[Request]:
    """Return a write of each key."""
    value = b"x" * VALUE_SIZE
    return [Request("write", "put", PutRequest(key=key(i), value=value)) for i in range(KEYS)]


def points() -> list[Request]:
    """Return a linearizable read of each key."""
    return [Request("read", "get", RangeRequest(key=key(i))) for i in range(KEYS)]


def ranges(size: int) -> list[Request]:
    """Return linearizable reads of ``size`` keys in a row, from any key on; 1 .. `KEYS`."""
    return [
        Request(
            "read",
            f"range of {size}",
            RangeRequest(key=key(i), range_end=key(i + size)),
        )
        for i in range(KEYS - size + 1)
    ]


def mixed(read_part: float) -> Workload:
    """Return the paper's workload: point reads and single-key writes."""
    return Workload(read_part, points(), puts())
