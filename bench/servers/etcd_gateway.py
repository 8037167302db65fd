"""etcd's JSON gateway: administration without any client library."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

Json = dict[str, object]


class EtcdError(RuntimeError):
    """The server refused.

    Attributes:
        code: The gRPC status code, a number.
        details: The message that belongs to it.
    """

    def __init__(self, code: int, details: str) -> None:
        super().__init__(f"{details} (gRPC code {code})")
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member says of itself; ``leader_id`` is 0 when it knows none."""

    member_id: int
    leader_id: int
    term: int
    revision: int
    raft_index: int
    is_learner: bool


class Gateway:
    """One member's gateway, on a connection of its own for each call.

    Args:
        host: Where the member listens.
        port: Its port for clients.
        authority: The certificate to trust, PEM; plain HTTP when None.
        timeout: Seconds to wait for a connection and for an answer.
    """

    def __init__(
        self, host: str, port: int, *, authority: str | None = None, timeout: float = 5.0
    ) -> None:
        self._address = (host, port)
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=authority) if authority else None

    def call(self, path: str, body: Mapping[str, object], *, token: str | None = None) -> Json:
        """Return the answer to a call such as ``"kv/range"``.

        64-bit numbers come as strings and bytes in base64, as protobuf's JSON form has it; fields
        that are zero or empty are missing.

        Raises:
            EtcdError: The server refused.
            OSError: It cannot be reached, or did not answer in time.
        """
        headers = {"Authorization": token} if token else {}
        connection = self._connection()
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
            response = connection.getresponse()
            answer = cast(Json, json.loads(response.read() or b"{}"))
        except (http.client.HTTPException, json.JSONDecodeError) as error:
            raise ConnectionError(f"no answer of a gateway: {error!r}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            code = cast(int, answer.get("code", 2))
            raise EtcdError(code, str(answer.get("message") or answer.get("error")))
        return answer

    def status(self) -> MemberStatus:
        """Return what the member says of itself, without asking any other."""
        answer = self.call("maintenance/status", {})
        header = cast("dict[str, str]", answer["header"])
        return MemberStatus(
            member_id=int(header["member_id"]),
            leader_id=_number(answer, "leader"),
            term=_number(answer, "raftTerm"),
            revision=int(header.get("revision", 0)),
            raft_index=_number(answer, "raftIndex"),
            is_learner=answer.get("isLearner", False) is True,
        )

    def login(self, user: str, password: str) -> str:
        """Return a token of this user."""
        return str(self.call("auth/authenticate", {"name": user, "password": password})["token"])

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(*self._address, timeout=self._timeout)
        return http.client.HTTPSConnection(*self._address, timeout=self._timeout, context=self._tls)


def encoded(data: bytes | str) -> str:
    """Return bytes, or text in UTF-8, as the gateway takes them."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def decoded(text: str) -> str:
    """Return the text, in UTF-8, that the gateway gave."""
    return base64.b64decode(text).decode()


def _number(answer: Json, field: str) -> int:
    return int(cast(str, answer.get(field, "0")))
