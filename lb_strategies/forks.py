"""What has to start anew in a forked child: locks that another thread held, counts, threads."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Has a method that is called in a forked child, before anything else runs there."""

    def _after_fork_in_child(self) -> None: ...


_renewables: WeakSet[Renewable] = WeakSet()


def renew_after_fork(thing: Renewable) -> None:
    """Have `thing` start anew in every child forked from now on, as long as it lives."""
    _renewables.add(thing)


def after_fork_in_child() -> None:
    """Renew everything; the interpreter calls this itself."""
    for thing in list(_renewables):
        thing._after_fork_in_child()


# Windows has no such function; there `dict` takes the call and does nothing with it.
getattr(os, "register_at_fork", dict)(after_in_child=after_fork_in_child)
