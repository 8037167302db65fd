"""Certificates for servers, made for one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


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


def make_token_keys(directory: Path) -> tuple[Path, Path]:
    """Write a new RSA key to sign tokens with; return the files of its public and private part."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public, private = directory / "tokens.pub", directory / "tokens.key"
    pem = serialization.Encoding.PEM
    public.write_bytes(
        key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    private.write_bytes(
        key.private_bytes(
            pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return public, private
