"""State listeners that are called outside of the connection's thread, so that they may wait.

kazoo calls them in the thread that all answers pass through: one that asks ZooKeeper for anything
waits for itself there, for ever.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from kazoo.protocol.states import KazooState

from lb_strategies.forks import renew_after_fork

_LOGGER: Final = logging.getLogger("lb_strategies")


class Notifier:
    """Makes calls one after the other, in a thread that lives as long as there are any."""

    def __init__(self) -> None:
        self._after_fork_in_child()
        renew_after_fork(self)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._is_active = False

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` after all those before it."""
        with self._lock:
            self._calls.append(function)
            if self._is_active:
                return
            self._is_active = True
        threading.Thread(target=self._run, name="lb-listeners", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._is_active = False
                    return
                function = self._calls.popleft()
            try:
                function()
            except Exception:
                _LOGGER.exception("a state listener failed")


class Listener:
    """Takes the place of a listener of the user's; equal to another one of the same.

    Args:
        function: the user's.
        notifier: what calls it.
        remove: called with this listener when `function` returns True.
    """

    def __init__(
        self,
        function: Callable[[KazooState], object],
        notifier: Notifier,
        remove: Callable[[Listener], None],
    ) -> None:
        self._function = function
        self._notifier = notifier
        self._remove = remove

    def __call__(self, state: KazooState) -> None:
        self._notifier.call(lambda: self._tell(state))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listener) and self._function == other._function

    def __hash__(self) -> int:
        return hash(self._function)

    def _tell(self, state: KazooState) -> None:
        if self._function(state) is True:
            self._remove(self)
