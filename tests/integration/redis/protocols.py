"""What must be the same whatever parses the replies; run by `test_protocols.py`.

Run in a Python of its own, since redis-py decides on being imported whether it uses hiredis.
"""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import product
from typing import Any

from . import library
from .drivers import Address, Connector, Driver, Mode
from .nodes import KEYS

MODES: tuple[Mode, ...] = ("sync", "asyncio")


async def check(client: Driver, sick: str, *, decode: bool) -> dict[str, Any]:
    """Return what is wrong with a client, while the endpoint `sick` answers MASTERDOWN."""

    def text(*values: str) -> list[Any]:
        return [value if decode else value.encode() for value in values]

    wrong: dict[str, Any] = {}

    def expect(what: str, found: object, expected: object) -> None:
        if found != expected:
            wrong[what] = repr(found)

    log = await client.reads(count=128, keys=KEYS)
    expect("errors", log.errors, [])
    expect("values", log.values, text(*KEYS, *KEYS))
    for _ in range(4):
        piped = await client.pipeline([("get", key) for key in KEYS[:8]])
        expect("pipeline", piped, text(*KEYS[:8]))
    expect("asked the sick node", client.stats()[sick].failures > 0, True)
    expect(
        "hash", await client.hgetall("hash"), dict(zip(text("a", "b"), text("1", "2"), strict=True))
    )
    for raw in ("hget", "HGET"):
        expect("raw", await client.execute_command(raw, "hash", "a"), text("1")[0])
    before = client.total("successes")
    answers = [
        *await client.together([("hgetall", "key:0")]),
        *await client.pipeline([("hgetall", "key:0"), ("get", "key:0")], raise_on_error=False),
    ]
    replied = library.errors.ResponseError
    expect("error replies", [type(answer) for answer in answers[:2]], [replied] * 2)
    expect("after an error", answers[2], text("key:0")[0])
    if client.mode == "sync":  # in asyncio a stall of the loop makes one of them untimed
        expect("answers counted", client.total("successes") >= before + 2, True)
    transaction = [("get", "key:0"), ("lpop", "key:0")]
    results = await client.pipeline(
        transaction, transaction=library.HAS_TRANSACTIONS, raise_on_error=False
    )
    expect("transaction", results[0], text("key:0")[0])
    expect("transaction", type(results[1]), replied)
    expect("in flight", client.total("in_flight"), 0)
    return wrong


async def main(host: str, port: str, sick: str) -> dict[str, Any]:
    """Check every mode, protocol and decoding."""
    wrong = {}
    servers = Address(host, int(port))
    for mode, protocol, decode in product(MODES, (2, 3), (False, True)):
        connector = Connector(mode)
        try:
            client = await connector.ours(
                servers,
                "latency_based",
                protocol=protocol,
                decode_responses=decode,
            )
            found = await check(client, sick, decode=decode)
        finally:
            await connector.close()
        if found:
            wrong[f"{mode}, RESP{protocol}, decode_responses={decode}"] = found
    return {"hiredis": library.HAS_C_PARSER, "wrong": wrong}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))))
