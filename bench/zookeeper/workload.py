"""What the workers ask of ZooKeeper: reads and writes of random nodes."""

from __future__ import annotations

from typing import Final

from bench.closed_loop import Request, Workload

NODES: Final = 1000
VALUE: Final = b"x" * 256
PARENT: Final = "/bench"


def path(number: int) -> str:
    """Return the path of the node of that number."""
    return f"{PARENT}/{number:06d}"


def mixed(read_part: float) -> Workload:
    """Return reads of single nodes, and writes of single nodes, of all nodes."""
    return Workload(
        read_part,
        [Request("read", "get", path(i)) for i in range(NODES)],
        [Request("write", "set", path(i)) for i in range(NODES)],
    )
