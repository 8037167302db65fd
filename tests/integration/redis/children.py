"""Running a part of a test in a process of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeAlias

How: TypeAlias = Literal["os.fork", "multiprocessing"]

ROOT = Path(__file__).parents[3]
PATIENCE = 30.0
"""Seconds that a child may take."""


def run_module(
    name: str, *arguments: object, path: Sequence[Path] = (), runner: Sequence[str] = ()
) -> Any:
    """Run a module beside this one in a new Python; return what it printed, as JSON.

    Args:
        name: of the module.
        arguments: its command line.
        path: where packages are looked for first.
        runner: a module that runs it, with its own arguments.
    """
    where = [*path, ROOT, ROOT / "integrations", *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", *runner, f"{__package__}.{name}", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, where))},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


class Forked:
    """A child that runs `work` and sends back what it returns.

    Args:
        how: by what it is forked.
        work: what it does; the client that it uses is the parent's.
    """

    def __init__(self, how: How, work: Callable[[], Any]) -> None:
        self._receiving, sending = multiprocessing.Pipe(duplex=False)
        # Where the threads of a child stand that hangs: it can't be asked any more.
        self._stacks = tempfile.TemporaryFile("w+")  # noqa: SIM115  # until its result is taken

        def run() -> None:
            faulthandler.dump_traceback_later(PATIENCE - 1, file=self._stacks)
            _work(work, sending)
            faulthandler.cancel_dump_traceback_later()

        with warnings.catch_warnings():
            # Newer Pythons warn of forks beside threads, which is what this is about.
            warnings.simplefilter("ignore", DeprecationWarning)
            if how == "os.fork":
                self._pid = os.fork()
                if not self._pid:
                    run()
                    os._exit(0)
            else:
                process = multiprocessing.get_context("fork").Process(target=run)
                process.start()
                assert process.pid is not None
                self._pid = process.pid
        sending.close()

    def result(self) -> Any:
        """Return what the child sent, once it has ended.

        Raises:
            AssertionError: it hung, or died.
        """
        try:
            if not self._receiving.poll(PATIENCE):
                self._stacks.seek(0)
                raise AssertionError(f"the child hangs:\n{self._stacks.read()}")
            result = self._receiving.recv()
        except EOFError:
            result = "the child died"
        finally:
            self._receiving.close()
            self._stacks.close()
            self._end()
        assert not isinstance(result, str), result
        return result

    def _end(self) -> None:
        deadline = time.monotonic() + 5
        with contextlib.suppress(ChildProcessError):  # multiprocessing waits for its own
            while time.monotonic() < deadline:
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    return
                time.sleep(0.02)
            os.kill(self._pid, 9)
            os.waitpid(self._pid, 0)


def _work(work: Callable[[], Any], sending: Connection) -> None:
    try:
        sending.send(work())
    except BaseException as error:
        sending.send(repr(error))
