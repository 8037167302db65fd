"""Certificates for servers, made for one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the PEM files of a server, or of a client, are.

    Attributes:
        authority: The certificate that others' must be signed with.
        certificate: Its own.
        key: Of its own certificate.
    """

    authority: Path
    certificate: Path
    key: Path


class Certificates:
    """An authority, made for this run, and what it has signed.

    Args:
        directory: Where to write the files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = trustme.CA()

    def issue(self, host: str, *more: str) -> TlsFiles:
        """Return the files of a server, or of a client, at ``host``, with ``more`` names."""
        signed = self._authority.issue_cert(host, *more)
        files = TlsFiles(
            authority=self._directory / "authority.pem",
            certificate=self._directory / f"{host}.pem",
            key=self._directory / f"{host}.key",
        )
        self._authority.cert_pem.write_to_path(str(files.authority))
        signed.cert_chain_pems[0].write_to_path(str(files.certificate))
        signed.private_key_pem.write_to_path(str(files.key))
        return files
