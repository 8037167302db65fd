"""What the workers ask of etcd: linearizable reads and writes of random keys."""

from __future__ import annotations

from typing import Final

from bench.closed_loop import Request, Workload
from bench.etcd.messages import PutRequest, RangeRequest

KEYS: Final = 1000
VALUE_SIZE: Final = 256


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
