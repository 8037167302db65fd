"""Whose socket is at the other end of a loopback connection (Linux)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

# Columns of /proc/net/tcp.
LOCAL, REMOTE, INODE = 1, 2, 9


def belongs_to(pids: Iterable[int], port: int, remote_port: int) -> bool:
    """Return whether one of the processes holds the socket at ``port`` connected to the other.

    Takes a read of the kernel's table of connections, about a millisecond.
    """
    inode = _inode(port, remote_port)
    return inode is not None and any(inode in _sockets(pid) for pid in pids)


def _inode(port: int, remote_port: int) -> str | None:
    wanted = (f"{port:04X}", f"{remote_port:04X}")
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if (fields[LOCAL][-4:], fields[REMOTE][-4:]) == wanted:
                    return fields[INODE]
    return None


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for file in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(file.path).removeprefix("socket:[").removesuffix("]"))
    return found
