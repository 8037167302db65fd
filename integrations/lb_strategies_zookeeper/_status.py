"""What a server says of itself: by the word ``srvr``, or by its AdminServer.

``srvr`` is the only four-letter word that servers answer by default. Both say which role the
server has and how far it is; a follower does not say whom it follows.
"""

from __future__ import annotations

import json
import re
from typing import Final

from lb_strategies import MemberStatus, StatusRefusedError

WORD: Final = b"srvr"
ADMIN_PATH: Final = "/commands/server_stats"

_FIELD: Final = re.compile(r"^(Zxid|Mode): (\S+)$", re.MULTILINE)
_ROLES: Final = frozenset({"leader", "follower", "observer", "standalone"})
_LEADING: Final = frozenset({"leader", "standalone"})
_NO_LEADER: Final = MemberStatus(term=0, leader=None, has_leader=False)
_REFUSED: Final = "is not in the whitelist"
_NOT_SERVING: Final = "not currently serving"


def parse_word(member: str, answer: str) -> MemberStatus:
    """Read the answer of `member` to ``srvr``.

    Raises:
        StatusRefusedError: the word is not on the server's whitelist.
        ValueError: it is no answer that a server gives.
    """
    if _REFUSED in answer:
        raise StatusRefusedError(answer.strip())
    if _NOT_SERVING in answer:
        return _NO_LEADER
    found = dict(_FIELD.findall(answer))
    return _status(member, found.get("Mode"), int(found.get("Zxid", "-1"), 16))


def parse_admin(member: str, answer: bytes) -> MemberStatus:
    """Read the answer of the AdminServer of `member` to ``server_stats``.

    Raises:
        ValueError: it is no answer that an AdminServer gives.
    """
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError(f"no answer of an AdminServer: {answer!r}")
    if found.get("error"):
        return _NO_LEADER
    stats = found.get("server_stats") or found
    return _status(member, stats.get("server_state"), int(stats.get("last_processed_zxid", -1)))


def _status(member: str, role: str | None, zxid: int) -> MemberStatus:
    if role == "read-only":  # cut off from the others, and serving what it has
        return _NO_LEADER
    if role not in _ROLES or zxid < 0:
        raise ValueError(f"{member} does not say what it is")
    # Observers have no vote, but whatever a follower may be asked they may be asked too.
    return MemberStatus(
        term=zxid >> 32, leader=member if role in _LEADING else None, has_leader=True
    )
