"""TLS credentials from files, as etcd3 takes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import grpc

FilePath: TypeAlias = str | os.PathLike[str]


def make_credentials(
    credentials: grpc.ChannelCredentials | None,
    *,
    ca_cert: FilePath | None,
    cert_key: FilePath | None,
    cert_cert: FilePath | None,
) -> grpc.ChannelCredentials | None:
    """Return the credentials that were given in one way or the other; None if there are none.

    Args:
        credentials: ready made.
        ca_cert: PEM file of whom to trust; gRPC's own roots without it.
        cert_key: PEM file of the client's private key ...
        cert_cert: ... and of its certificate.

    Raises:
        ValueError: both ways at once, a key without a certificate or the reverse, or a file that
            cannot be read.
        TypeError: an argument is of another type.
    """
    files = {"ca_cert": ca_cert, "cert_key": cert_key, "cert_cert": cert_cert}
    given = {name: file for name, file in files.items() if file is not None}
    if credentials is not None:
        if not isinstance(credentials, grpc.ChannelCredentials):
            raise TypeError(
                f"credentials must be grpc.ChannelCredentials, got {type(credentials).__name__}"
            )
        if given:
            raise ValueError(f"credentials and {', '.join(given)} exclude each other")
        return credentials
    if not given:
        return None
    if ("cert_key" in given) != ("cert_cert" in given):
        missing = "cert_cert" if "cert_key" in given else "cert_key"
        raise ValueError(f"cert_key and cert_cert go together, got no {missing}")
    content = {name: _read(name, file) for name, file in given.items()}
    return grpc.ssl_channel_credentials(
        content.get("ca_cert"), content.get("cert_key"), content.get("cert_cert")
    )


def _read(option: str, file: FilePath) -> bytes:
    try:
        path = Path(file)
    except TypeError:
        raise TypeError(f"{option} must be a path, got {file!r}") from None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{option} must be a readable file, got {file!r}: {error}") from error
