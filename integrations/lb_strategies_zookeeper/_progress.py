"""How far a session has seen: what the next read must not be older than.

Positions are ZooKeeper's transaction ids (zxids), which grow by one with each change and begin
with the leader's epoch, so that they compare across elections. The header of every reply has the
last one that the server had applied when it answered, with no other change applied meanwhile.
"""

from __future__ import annotations

import threading
from typing import Any

from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from lb_strategies.forks import renew_after_fork


class Progress:
    """What a session has written, read and been told of; may be asked from any thread."""

    def __init__(self) -> None:
        self.zxid = 0
        """The position that reads must have reached."""
        self.events = 0
        """Watches that have fired, which do not tell where."""
        self._settled = 0
        """Those among them that `zxid` is known to cover."""
        self._after_fork_in_child()
        renew_after_fork(self)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()

    @property
    def is_unsettled(self) -> bool:
        """Whether a watch has fired of which it is not known where."""
        return self._settled != self.events

    def saw(self, zxid: int) -> None:
        """Take in that the session has seen the state at `zxid`."""
        if zxid > self.zxid:
            with self._lock:
                self.zxid = max(self.zxid, zxid)

    def settle(self, zxid: int, events: int) -> None:
        """Take in that the state at `zxid` is one after the first `events` fired."""
        self.saw(zxid)
        with self._lock:
            self._settled = max(self._settled, events)

    def fired(self) -> None:
        """Take in that a watch has fired."""
        with self._lock:
            self.events += 1

    def answered(self, value: object, zxid: int) -> None:
        """Take in an answer on the session's own connection: it comes after all that fired."""
        if self.is_unsettled:
            self.settle(zxid, self.events)
        else:
            self.saw(position_of(value, zxid))


def position_of(value: Any, zxid: int) -> int:
    """Return what is seen by seeing `value`, answered at `zxid`.

    What comes with the node's stat was the same ever since the node changed last, which usually
    is long before `zxid`, so that servers that are a little behind need not be avoided. But a
    stat does not tell when the access list changed, and what does not exist has no stat.
    """
    if type(value) is tuple and len(value) == 2 and isinstance(value[1], ZnodeStat):
        content = value[0]
        if not (isinstance(content, list) and content and isinstance(content[0], ACL)):
            return stat_position(value[1])
    return zxid


def stat_position(stat: ZnodeStat) -> int:
    """Return when the node of `stat`, its data or its list of children changed last."""
    return max(stat.czxid, stat.mzxid, stat.pzxid)
