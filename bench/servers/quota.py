"""A bounded share of the processor for a process, as if it had a small machine of its own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path("/sys/fs/cgroup")
PERIOD: Final = 0.01
"""Seconds in which a group gets its share; it then waits for the next one."""


class QuotaError(RuntimeError):
    """There are no control groups here, or we may not make one."""


class CpuQuota:
    """A control group of Linux (version 1 or 2) with a quota; a context manager that removes it.

    Args:
        name: Of the group; made unique.
        cpus: Processors that its processes may use together, such as 0.2; at least 0.1.

    Raises:
        QuotaError: On entering, see there.
    """

    def __init__(self, name: str, cpus: float) -> None:
        if not cpus >= 0.1:
            raise ValueError(f"cpus={cpus} must be at least 0.1, the least that Linux can do")
        self._name = f"{name}-{os.getpid()}-{id(self)}"
        self._cpus = cpus
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        period = round(PERIOD * 1e6)
        quota = round(self._cpus * period)
        is_second = (ROOT / "cgroup.controllers").exists()
        folder = (ROOT if is_second else ROOT / "cpu") / self._name
        try:
            folder.mkdir()
            self._folder = folder
            if is_second:
                (folder / "cpu.max").write_text(f"{quota} {period}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(period))
                (folder / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError as error:
            self._remove()
            raise QuotaError(f"no control group with a quota can be made: {error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def hold(self, pids: Collection[int]) -> None:
        """Put processes into the group, with all their threads and later children."""
        if self._folder is None:
            raise RuntimeError("the group is not there")
        for pid in pids:
            (self._folder / "cgroup.procs").write_text(str(pid))

    def _remove(self) -> None:
        folder, self._folder = self._folder, None
        if folder is None:
            return
        # Who is still in it goes back to where everybody is.
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (folder.parent / "cgroup.procs").write_text(pid)
        for _ in range(50):
            try:
                folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)  # a process that has just ended is in it for a moment
            else:
                return
