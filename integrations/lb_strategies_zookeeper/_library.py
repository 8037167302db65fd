"""Which versions of kazoo fit, and whether the parts of it that have no stable name are there."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

import kazoo.client
from kazoo.version import __version__

OLDEST: Final = (2, 9)
BELOW: Final = (3, 0)


class UnsupportedClientError(ImportError):
    """The kazoo at hand is too old or too new for this adapter."""


def check_version(version: str = __version__) -> None:
    """Check that `version` is one that the adapter supports.

    Raises:
        UnsupportedClientError: it is not.
    """
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not OLDEST <= found < BELOW:
        raise UnsupportedClientError(
            f"lb-strategies supports kazoo from {_dotted(OLDEST)} to below {_dotted(BELOW)}, "
            f"and {version} is installed"
        )


def missing_parts(client: kazoo.client.KazooClient) -> list[str]:
    """Return those private parts that moving a session needs and that `client` has not."""
    connection = getattr(client, "_connection", None)
    parts = {
        "_connection._socket": hasattr(connection, "_socket"),
        "_connection.sasl_options": hasattr(connection, "sasl_options"),
        "_call": callable(getattr(client, "_call", None)),
        "_queue": isinstance(getattr(client, "_queue", None), deque),
        "_pending": isinstance(getattr(client, "_pending", None), deque),
        "_session_timeout": isinstance(getattr(client, "_session_timeout", None), int),
        "last_zxid": isinstance(getattr(client, "last_zxid", None), int),
    }
    return [name for name, is_there in parts.items() if not is_there]


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
