"""ZooKeeper's configuration and Java's command line, for tests: quick to start and to elect."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.servers.binaries import ZooKeeperInstallation

SUPER_USER = ("super", "launcher")
"""User and password for whom no ACL counts: ``clear`` must delete everybody's nodes."""


def common_options(
    *,
    tick: float,
    sync_limit: int,
    leader_serves: bool,
    four_letter_words: Sequence[str],
) -> dict[str, str]:
    """Return the options that all servers share; see ``ZooKeeperServers`` for the arguments."""
    return {
        "tickTime": f"{tick * 1000:.0f}",
        "syncLimit": str(sync_limit),
        # So long does a leader wait whom nobody follows, because the others were not ready to or
        # have begun another round of the election: it happens to servers that start together.
        "initLimit": str(max(4, round(3 / tick))),
        "maxSessionTimeout": "60000",
        "maxClientCnxns": "0",
        # Seconds between attempts to reach each other in an election double up to this; else 60.
        "fastleader.maxNotificationInterval": "400",
        # Between five attempts to reach a new leader.
        "leaderConnectDelayDuringRetryMs": "200",
        "forceSync": "no",
        "preAllocSize": "1024",
        "standaloneEnabled": "false",
        "leaderServes": "yes" if leader_serves else "no",
        "4lw.commands.whitelist": ",".join(["srvr", *four_letter_words]),
        "DigestAuthenticationProvider.superDigest": digest(*SUPER_USER),
        "jmx.log4j.disable": "true",
    }


def digest(user: str, password: str) -> str:
    """Return the id of a user in ACLs of the digest scheme."""
    hashed = hashlib.sha1(f"{user}:{password}".encode()).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"


def write_config(file: Path, options: Mapping[str, str]) -> None:
    """Write a configuration file."""
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))


def java_command(
    installation: ZooKeeperInstallation,
    config: Path,
    *,
    hosts: Path | None,
    java_options: Sequence[str],
) -> list[str]:
    """Return the command that starts a server.

    Args:
        installation: The jars, and the Java to run them.
        config: The configuration file.
        hosts: A hosts file, which replaces the system's way of finding addresses.
        java_options: More options of Java; a later one wins.
    """
    command = [
        str(installation.java),
        # What a server needs for small tests, started as quickly as can be.
        "-Xmx64m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # No files beside those of the server's own directory.
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={config.parent}",
        "-Djava.net.preferIPv4Stack=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    ]
    if hosts is not None:
        command += [f"-Djdk.net.hosts.file={hosts}"]
    return [
        *command,
        *java_options,
        "-cp",
        ":".join(str(jar) for jar in installation.jars),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(config),
    ]
