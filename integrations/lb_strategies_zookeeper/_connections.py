"""Connections that are like those of a client: for its other sessions, and for polls."""

from __future__ import annotations

import copy
import socket
from collections.abc import Mapping
from typing import Any, Final

import kazoo.client
from kazoo.retry import KazooRetry

from ._handlers import ReadHandler
from ._sessions import LOGGER

_TLS: Final = (
    "use_ssl",
    "ca",
    "certfile",
    "keyfile",
    "keyfile_password",
    "verify_certs",
    "check_hostname",  # since kazoo 2.11
)
_OF_SESSIONS: Final = (*_TLS, "read_only")
"""What the sessions that read are made with, if the client is."""


class Connections:
    """Makes connections as `client` does.

    Args:
        client: whose; it need not be made yet.
        arguments: that it is made with.
    """

    def __init__(self, client: kazoo.client.KazooClient, arguments: Mapping[str, Any]) -> None:
        self._client = client
        self._arguments = {name: arguments[name] for name in _OF_SESSIONS if name in arguments}

    @property
    def check_names(self) -> bool:
        """Whether a server's certificate has to be for the name that it was reached by."""
        client = self._client
        return bool(client.use_ssl and getattr(client, "check_hostname", False))

    def connect_reader(
        self, member: str, handler: ReadHandler, retry: KazooRetry
    ) -> kazoo.client.KazooClient:
        """Return a client of `member` alone that may do what `client` may."""
        client = self._client
        return kazoo.client.KazooClient(
            member + client.chroot,
            client._session_timeout / 1000.0,
            handler=handler,
            connection_retry=retry,
            auth_data=set(client.auth_data),
            sasl_options=copy.copy(client._connection.sasl_options),
            logger=LOGGER,
            **self._arguments,
        )

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        """Connect to a server within `timeout` seconds."""
        client = self._client
        arguments = {name: getattr(client, name) for name in _TLS if hasattr(client, name)}
        if "check_hostname" in arguments:
            arguments["hostname"] = host
        connection: socket.socket = client.handler.create_connection(
            (host, port), timeout=timeout, **arguments
        )
        return connection
