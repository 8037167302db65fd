"""etcd's command line, for tests: quick to start, to elect and to write."""

from __future__ import annotations

from bench.servers.binaries import Binary
from bench.servers.etcd_member import Place
from bench.servers.tls import TlsFiles


def common_options(
    binary: Binary,
    *,
    heartbeat: float,
    election: float,
    auth_token_ttl: int | None,
) -> dict[str, str]:
    """Return the options that all members share; see ``EtcdServers`` for the arguments."""
    options = {
        "heartbeat-interval": f"{heartbeat * 1000:.0f}",
        "election-timeout": f"{election * 1000:.0f}",
        "logger": "zap",
        "log-level": "error",
        # The cheapest: by default each log-in takes a tenth of a second of computing.
        "bcrypt-cost": "4",
        # Else members can be added only to a cluster that is five seconds old.
        "strict-reconfig-check": "false",
    }
    if auth_token_ttl is not None:
        options["auth-token-ttl"] = str(auth_token_ttl)
    if not binary.version.startswith("3.4."):
        options["unsafe-no-fsync"] = "true"
    return options


def place_options(place: Place, files: TlsFiles | None) -> dict[str, str]:
    """Return the options that say where a member listens and is found."""
    scheme = "http" if files is None else "https"
    options = {
        "listen-client-urls": f"{scheme}://{place.address(place.client_port)}",
        "advertise-client-urls": f"{scheme}://{place.endpoint}",
        "listen-peer-urls": f"http://{place.address(place.peer_port)}",
        "initial-advertise-peer-urls": f"http://{place.peer_endpoint}",
    }
    if files is not None:
        options |= {"cert-file": str(files.certificate), "key-file": str(files.key)}
    return options
