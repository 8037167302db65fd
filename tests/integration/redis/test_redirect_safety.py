"""Where a redirect may lead to: no byte goes to an address that nobody has confirmed."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot

from bench.servers.binaries import find_redis_server
from bench.servers.process import wait_until
from bench.servers.redis import RedisClusterServers, RedisNode
from lb_strategies import EndpointPolicy
from lb_strategies_redis import EndpointRefusedError, use_strategy

from . import library
from .drivers import Connector, Driver, assert_answered
from .impostors import HOST, Liar, Stranger, encode
from .nodes import ahead_of_its_slot, fill, half_moved, info, move, owner
from .test_redirects import the_other

pytestmark = pytest.mark.integration

KEY = "{moving}0"
OTHER = "{moving}1"
SLOT = key_slot(KEY.encode())
SECRET = "not-for-strangers"

SAY = "return redis.error_reply(ARGV[1])"
"""A script with which a real server redirects to wherever it is told to."""


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    """An address that is none of the cluster's; nobody may call it."""
    with Stranger() as listening:
        yield listening
        assert listening.heard() == []


@pytest.fixture
def login(lonely: RedisClusterServers) -> Iterator[dict[str, str]]:
    """A user of every server, as options of a client."""
    for node in lonely.nodes:
        node.ask("ACL", "SETUSER", "alice", "on", f">{SECRET}", "~*", "&*", "+@all")
    yield {"username": "alice", "password": SECRET}
    for node in lonely.nodes:
        node.ask("ACL", "DELUSER", "alice")


def test_a_stranger_notices_whoever_calls() -> None:
    """The other tests rely on it."""
    with Stranger() as listening:
        one = redis.Redis(
            host=HOST,
            port=listening.port,
            password=SECRET,
            socket_timeout=0.2,
            retry=redis.retry.Retry(NoBackoff(), 0),
        )
        with one, pytest.raises(redis.TimeoutError):
            one.ping()
        assert SECRET.encode() in b"".join(listening.heard())
        assert listening.heard() == []


def refreshes(nodes: list[RedisNode]) -> int:
    """Return how often the servers have been asked for their topology."""
    return sum(node.command_calls("cluster|slots") for node in nodes)


async def refused(client: Driver, *command: Any) -> str:
    """Run a command that fails because of the address; return the message."""
    with pytest.raises(EndpointRefusedError) as caught:
        await client.execute_command(*command)
    assert isinstance(caught.value, library.errors.ClusterError)
    assert isinstance(caught.value.__cause__, library.errors.AskError)
    assert client.total("in_flight") == 0
    return str(caught.value)


@pytest.mark.parametrize("kind", ["MOVED", "ASK"])
@pytest.mark.parametrize("command", ["EVAL", "EVAL_RO"])
async def test_a_redirect_to_an_address_that_no_known_node_lists_is_refused(
    connect: Connector,
    lonely: RedisClusterServers,
    login: dict[str, str],
    stranger: Stranger,
    kind: str,
    command: str,
) -> None:
    """https://github.com/redis/redis-py/issues/3382: redis-py sends AUTH to whatever is named."""
    client = await connect.ours(lonely, "latency_based", **login)
    say = (command, SAY, 1, KEY, f"{kind} {SLOT} {stranger.endpoint}")
    asked, start = refreshes(lonely.nodes), time.perf_counter()
    message = await refused(client, *say)
    assert message.startswith(f"{kind} to {stranger.endpoint} is not followed: no known node")
    assert "endpoint_policy" in message
    for _ in range(10):
        assert await refused(client, *say) == message
    # Being redirected again and again has the topology refreshed once a second at most.
    assert refreshes(lonely.nodes) - asked <= 1 + time.perf_counter() - start
    assert stranger.endpoint not in {node.name for node in client.client.get_nodes()}
    assert await client.set(KEY, "value")
    assert await client.get(KEY) == "value"
    assert client.total("failures") == 0


async def test_in_a_pipeline_only_the_redirected_command_is_refused(
    connect: Connector, lonely: RedisClusterServers, login: dict[str, str], stranger: Stranger
) -> None:
    client = await connect.ours(lonely, "latency_based", **login)
    say = ("execute_command", "EVAL_RO", SAY, 1, KEY, f"MOVED {SLOT} {stranger.endpoint}")
    commands = [("set", OTHER, "o"), say, ("get", OTHER), ("get", "key:1")]
    results = await client.pipeline(commands, raise_on_error=False)
    assert isinstance(results.pop(1), EndpointRefusedError)
    assert results == [True, "o", "key:1"]
    with pytest.raises(EndpointRefusedError, match=stranger.endpoint):
        await client.pipeline(commands)
    assert client.total("in_flight") == client.total("failures") == 0


@library.with_transactions
@pytest.mark.parametrize("steps", [1, 5])
async def test_a_transaction_is_not_sent_to_an_address_that_no_known_node_lists(
    connect: Connector, lonely: RedisClusterServers, stranger: Stranger, steps: int
) -> None:
    """The server answers what is queued with MOVED.

    With steps of 1 redis-py never follows it, but refreshes the topology, and gives up.
    """
    with Liar(owner(lonely, KEY)) as liar:
        options = {"reinitialize_steps": steps, **connect.retries(3)}
        client = await behind(connect, lonely, liar, **options)
        answers = {
            "SET": f"-MOVED {SLOT} {stranger.endpoint}\r\n".encode(),
            "EXEC": b"-EXECABORT Transaction discarded because of previous errors.\r\n",
        }
        liar.lie = lambda request: answers.get(request[0])
        can_wait = client.mode == "sync" or library.CONFIRMS_TRANSACTIONS
        expected = EndpointRefusedError if steps > 1 and can_wait else library.errors.MovedError
        with pytest.raises(expected, match=stranger.endpoint):
            await client.pipeline([("set", KEY, "v")], transaction=True)
        with pytest.raises(EndpointRefusedError, match=stranger.endpoint):
            await client.set(KEY, "v")
        assert client.total("in_flight") == 0
        assert 0 < liar.count("SET") < 16
        liar.lie = lambda request: None
        assert await client.pipeline([("incr", OTHER)], transaction=True) == [1]
        await connect.close()


@library.with_transactions
async def test_a_transaction_on_a_slot_that_is_being_migrated_ends(
    connect: Connector, growing: RedisClusterServers
) -> None:
    """redis-py takes the ASK for a MOVED there, and the two nodes send it to and fro."""
    source = owner(growing, KEY)
    client = await connect.ours(growing, "latency_based", **connect.retries(3))
    with half_moved(KEY, source, growing.nodes[2]):
        with pytest.raises(library.errors.AskError):  # or MOVED, which is a kind of it
            await client.pipeline([("incr", KEY)], transaction=True)
        assert client.total("in_flight") == client.total("failures") == 0
    assert await client.pipeline([("incr", KEY)], transaction=True) == [1]


async def refresh(client: Driver, **options: Any) -> None:
    """Have the client renew its topology."""
    refreshed = client.client.nodes_manager.initialize(**options)
    if client.mode == "asyncio":
        await refreshed


async def test_a_node_that_a_server_has_named_is_not_asked_for_the_topology(
    connect: Connector, lonely: RedisClusterServers, login: dict[str, str], stranger: Stranger
) -> None:
    """redis-py would ask it when the nodes that it knows do not tell of every slot."""
    client = await connect.ours(lonely, "latency_based", **login)
    manager = client.client.nodes_manager
    known = dict(manager.startup_nodes)
    manager.startup_nodes.clear()
    options = {"additional_startup_nodes_info": [(HOST, stranger.port)]}
    with pytest.raises(library.ClusterException, match="at least one reachable"):
        await refresh(client, **options)
    manager.startup_nodes.update(known)
    await refresh(client)
    assert await client.get("key:0") == "key:0"


async def behind(
    connect: Connector, servers: RedisClusterServers, *liars: Liar, **options: Any
) -> Driver:
    """Return a client that is told by `address_remap` to go through `liars`."""
    ports = {liar.node.port: liar.port for liar in liars}
    return await connect.ours(
        servers,
        options.pop("strategy", "latency_based"),
        address_remap=lambda address: (address[0], ports.get(address[1], address[1])),
        **options,
    )


async def test_moved_and_ask_are_remapped_like_the_topology(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3382: redis-py remaps CLUSTER SLOTS only."""
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    with Liar(source) as at_source, Liar(target) as at_target:
        client = await behind(connect, lonely, at_source, at_target)
        names = {at_source.endpoint, at_target.endpoint}
        await client.set(KEY, "value")
        move(lonely, KEY, source, target)
        try:
            assert await client.get(KEY) == "value"
            assert at_target.count("GET") == 1
            assert await client.pipeline([("get", KEY), ("set", OTHER, "o")]) == ["value", True]
            with ahead_of_its_slot(KEY, target, source):
                assert await client.get(KEY) == "value"
                assert await client.set(KEY, "changed")
                assert at_source.count("ASKING") == 2
        finally:
            move(lonely, OTHER, target, source)
        assert set(client.stats()) == names == {node.name for node in client.client.get_nodes()}
        assert client.total("failures") == 0
        await connect.close()


@pytest.fixture(scope="module")
def _growing() -> Iterator[RedisClusterServers]:
    newest = find_redis_server(prefer_wheel=True)
    config = {"cluster-allow-replica-migration": "no"}
    with RedisClusterServers(primaries=3, replicas=0, binary=newest, config=config) as servers:
        fill(servers)
        yield servers


@pytest.fixture
def growing(_growing: RedisClusterServers) -> RedisClusterServers:
    """Three primaries, of which the last has no slots: one that has just joined."""
    first, _, last = _growing.nodes
    for node in _growing.nodes:
        node.ask("FLUSHALL")
    spans: Any = last.ask("CLUSTER", "SLOTS")
    first.ask("CLUSTER", "BUMPEPOCH")  # so that the others believe it, whoever has told them what
    for low, high, primary, *_ in spans:
        if primary[1] == last.port:
            last.ask("CLUSTER", "DELSLOTSRANGE", low, high)
            # At once: in between it might hear from the last that the slots are not free.
            with first.client() as client, client.pipeline() as both:
                both.execute_command("CLUSTER", "DELSLOTSRANGE", low, high)
                both.execute_command("CLUSTER", "ADDSLOTSRANGE", low, high)
                both.execute()
    wait_until(
        lambda: (
            all(_primaries(node) == {n.port for n in _growing.nodes[:2]} for node in _growing.nodes)
            and all(
                "cluster_state:ok" in str(node.ask("CLUSTER", "INFO")) for node in _growing.nodes
            )
        ),
        "the last primary has no slots",
    )
    return _growing


def _primaries(node: RedisNode) -> set[int]:
    spans: Any = node.ask("CLUSTER", "SLOTS")
    covered = sum(span[1] - span[0] + 1 for span in spans)
    return {span[2][1] for span in spans} if covered == 16384 else set()


@pytest.mark.parametrize("endpoint_type", ["ip", "unknown-endpoint"])
async def test_ask_to_a_node_without_slots_is_followed(
    connect: Connector, growing: RedisClusterServers, endpoint_type: str
) -> None:
    """https://github.com/redis/redis-py/issues/4015: CLUSTER SLOTS does not list that node."""
    source = owner(growing, KEY)
    empty = growing.nodes[2]
    with preferring(endpoint_type, growing):
        client = await connect.ours(growing, "latency_based")
        await client.set(KEY, "value")
        await client.set(OTHER, "stays")
        with ahead_of_its_slot(KEY, source, empty):
            for _ in range(3):
                assert await client.get(KEY) == "value"
            assert await client.set(KEY, "changed")
            results = await client.pipeline([("get", OTHER), ("get", KEY)])
            assert results == ["stays", "changed"]
        assert_answered(client, 5, endpoint=empty.endpoint)
        assert client.total("failures") == client.total("in_flight") == 0
        assert await client.get(OTHER) == "stays"


async def test_moved_to_a_node_that_has_just_got_its_first_slot_is_confirmed_and_followed(
    connect: Connector, growing: RedisClusterServers
) -> None:
    source = owner(growing, KEY)
    empty = growing.nodes[2]
    client = await connect.ours(growing, "latency_based")
    await client.set(KEY, "value")
    move(growing, KEY, source, empty)
    before = refreshes(growing.nodes)
    assert await client.get(KEY) == "value"
    assert refreshes(growing.nodes) == before + 1
    commands = [("incr", OTHER)]
    assert await client.pipeline(commands, transaction=library.HAS_TRANSACTIONS) == [1]
    assert client.total("failures") == client.total("in_flight") == 0


@pytest.mark.parametrize("transaction", library.EITHER_PIPELINE)
async def test_the_first_to_hear_of_a_new_node_can_be_a_pipeline(
    connect: Connector, growing: RedisClusterServers, transaction: bool
) -> None:
    if transaction and connect.mode == "asyncio" and not library.CONFIRMS_TRANSACTIONS:
        pytest.skip(f"an asyncio transaction of {library.TITLE} cannot wait for a confirmation")
    client = await connect.ours(growing, "latency_based")
    await client.set(KEY, "value")
    move(growing, KEY, owner(growing, KEY), growing.nodes[2])
    assert await client.pipeline([("incr", OTHER)], transaction=transaction) == [1]
    assert await client.get(OTHER) == "1"
    assert client.total("failures") == client.total("in_flight") == 0


@pytest.mark.parametrize("pooled", [2, 5])
async def test_asking_and_its_command_share_a_connection(
    connect: Connector, lonely: RedisClusterServers, pooled: int
) -> None:
    """redis-py 8.1 asyncio takes two from the pool: with two in it, all end in TTL exhausted."""
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    client = await connect.ours(lonely, "latency_based")
    await client.set(KEY, "value")
    await client.set(OTHER, "stays")
    keys = [f"key:{i}" for i in range(64) if owner(lonely, f"key:{i}") is target]
    await client.together([("get", key) for key in keys[:pooled]])
    with ahead_of_its_slot(KEY, source, target):
        log = await client.reads(count=30, keys=[KEY])
        assert (log.errors, log.values) == ([], ["value"] * 30)
        assert await client.together([("get", KEY)] * 8) == ["value"] * 8
        assert await client.append(KEY, "!") == 6  # and once only
        with pytest.raises(library.errors.ResponseError, match="WRONGTYPE"):
            await client.lpush(KEY, "x")
    assert client.total("failures") == client.total("in_flight") == 0


@pytest.mark.parametrize("kind", ["MOVED", "ASK"])
async def test_a_read_that_waits_for_data_is_redirected_like_any_other(
    connect: Connector, growing: RedisClusterServers, kind: str
) -> None:
    source = owner(growing, KEY)
    target = growing.nodes[2]
    client = await connect.ours(growing, "latency_based")
    await client.xadd(KEY, {"a": "b"}, id="1-1")
    with contextlib.ExitStack() as stack:
        if kind == "ASK":
            stack.enter_context(ahead_of_its_slot(KEY, source, target))
        else:
            move(growing, KEY, source, target)
        for _ in range(2):
            streams = await client.xread({KEY: "0"}, block=10)
            assert "1-1" in str(streams)
    assert client.total("in_flight") == client.total("failures") == 0


@pytest.mark.parametrize("command", ["EVAL", "EVAL_RO"])
async def test_a_circle_of_redirects_ends(
    connect: Connector, lonely: RedisClusterServers, command: str
) -> None:
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    client = await connect.ours(lonely, "latency_based")
    before = source.command_calls(command)
    with pytest.raises(library.errors.ClusterError, match="TTL exhausted"):
        await client.execute_command(command, SAY, 1, KEY, f"MOVED {SLOT} {target.endpoint}")
    assert 0 < source.command_calls(command) - before <= 16
    assert client.total("in_flight") == client.total("failures") == 0
    assert await client.get(KEY) is None


@contextlib.contextmanager
def preferring(
    endpoint_type: str, servers: RedisClusterServers, nameless: RedisNode | None = None
) -> Iterator[None]:
    """Have all servers announced by something else than their IP, `nameless` by nothing."""
    named = [node for node in servers.nodes if node is not nameless]
    for node in named:
        node.ask("CONFIG", "SET", "cluster-announce-hostname", HOST)
    for node in servers.nodes:
        node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint_type)
    try:
        if endpoint_type == "hostname":
            wait_until(
                lambda: all(
                    _names(node).count("?") == len(servers.nodes) - len(named)
                    for node in servers.nodes
                ),
                "the names are known",
            )
        yield
    finally:
        for node in servers.nodes:
            node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")
            node.ask("CONFIG", "SET", "cluster-announce-hostname", "")
        wait_until(
            lambda: not any("," + HOST in str(n.ask("CLUSTER", "NODES")) for n in servers.nodes),
            "the names are forgotten",
        )


def _names(node: RedisNode) -> list[str]:
    spans: Any = node.ask("CLUSTER", "SLOTS")
    return [server[0] for span in spans for server in span[2:]]


async def test_a_null_host_is_the_host_that_was_asked(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """redis-py 8.1 makes a node named ``None`` of it, and of an empty host in MOVED one of ``""``.

    Servers say so with ``cluster-preferred-endpoint-type unknown-endpoint``.
    """
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    with preferring("unknown-endpoint", lonely):
        client = await connect.ours(lonely, "latency_based")
        assert {n.name for n in client.client.get_nodes()} == {n.endpoint for n in lonely.nodes}
        assert await client.pipeline([("get", f"key:{i}") for i in range(20)]) == [
            f"key:{i}" for i in range(20)
        ]
        await client.set(KEY, "value")
        move(lonely, KEY, source, target)
        assert await client.get(KEY) == "value"
        move(lonely, KEY, target, source)
        assert await client.set(KEY, "w")
        assert set(client.stats()) == {node.endpoint for node in lonely.nodes}
        assert client.total("failures") == 0


async def test_a_replica_whose_host_is_a_question_mark_is_left_out(
    connect: Connector, shards: RedisClusterServers, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that shall be announced by its name, and has none."""
    nameless = shards.replicas[0]
    with preferring("hostname", shards, nameless):
        client = await connect.ours(shards, "latency_based")
        assert f"?:{nameless.port} is left out of the topology" in caplog.text
        log = await client.reads(count=64, keys=[f"key:{i}" for i in range(64)])
        assert log.errors == []
        expected = {node.endpoint for node in shards.nodes if node is not nameless}
        assert {node.name for node in client.client.get_nodes()} == expected
        assert set(client.stats()) == expected


async def test_without_its_primary_a_range_of_slots_is_not_covered_and_the_error_says_why(
    connect: Connector, shards: RedisClusterServers
) -> None:
    nameless = owner(shards, KEY)
    with preferring("hostname", shards, nameless):
        start = the_other(shards, nameless)
        options = {**connect.retries(0), "require_full_coverage": False}
        client = await connect.ours(start, "latency_based", **options)
        for command in (("get", KEY), ("set", KEY, "v")):
            with pytest.raises(
                library.errors.SlotNotCoveredError, match=rf"\?:{nameless.port} \(that is no"
            ):
                await client.call(*command)
        key = next(f"key:{i}" for i in range(64) if owner_is(start, f"key:{i}"))
        assert await client.get(key) == key


def owner_is(node: RedisNode, key: str) -> bool:
    spans: Any = node.ask("CLUSTER", "SLOTS")
    slot = key_slot(key.encode())
    return any(low <= slot <= high and primary[1] == node.port for low, high, primary, *_ in spans)


async def test_when_no_primary_has_an_address_the_client_says_so(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """redis-py 8.1 looks up the name ``?``."""
    for node in lonely.nodes:
        node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname")
    try:
        with pytest.raises(
            library.ClusterException, match=r"names no usable primary; left out: \?:"
        ):
            await connect.ours(lonely, "latency_based")
    finally:
        for node in lonely.nodes:
            node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")
        await connect.close()


async def test_empty_hosts_and_port_0_are_not_dialled(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """What servers are seen to answer before they know their own address."""
    option = "dynamic_startup_nodes"
    if option not in inspect.signature(connect.stock_class.__init__).parameters:
        pytest.skip(f"{library.TITLE} has no {option} in an {connect.mode} client")
    primary, *replicas = shard.nodes
    with Liar(primary) as liar:
        nodes = [
            [None, liar.port, "a"],
            ["", replicas[0].port, "b"],
            [HOST, 0, "c"],
            ["?", 7, "d"],
            [None, replicas[1].port, "e"],
            ["", 0, "f"],
        ]
        slots = encode([[0, 16383, *nodes]])
        liar.lie = lambda request: slots if request[:2] == ["CLUSTER", "SLOTS"] else None
        client = await connect.ours(liar, "latency_based", protocol=3, **{option: False})
        expected = {liar.endpoint, *(node.endpoint for node in replicas)}
        assert {node.name for node in client.client.get_nodes()} == expected
        log = await client.reads(count=100)
        assert log.errors == []
        assert set(client.stats()) == expected
        assert await client.set("w", "v")
        # What the user asks for is the server's answer, unchanged but for redis-py's own reading.
        listed = await client.cluster_slots(
            target_nodes=client.client.get_node(node_name=liar.endpoint)
        )
        assert len(next(iter(listed.values()))["replicas"]) == 5
        await connect.close()


def connections(node: RedisNode) -> int:
    """Return how many connections a server has been asked for, this one included."""
    return int(info(node, "stats")["total_connections_received"])


async def test_a_strict_policy_dials_only_what_was_configured(
    connect: Connector, lonely: RedisClusterServers, stranger: Stranger
) -> None:
    allowed = owner(lonely, KEY)
    other = the_other(lonely, allowed)
    theirs = next(f"key:{i}" for i in range(64) if owner_is(other, f"key:{i}"))
    before = connections(other)
    client = await connect.ours(
        allowed,
        "latency_based",
        endpoint_policy=EndpointPolicy(),
        require_full_coverage=False,
        **connect.retries(0),
    )
    assert await client.set(KEY, "v")
    message = rf"{other.endpoint} \(endpoint_policy allows configured addresses only"
    for command in (("get", theirs), ("set", theirs, "v")):
        with pytest.raises(library.errors.SlotNotCoveredError, match=message):
            await client.call(*command)
    asked = refreshes([allowed])
    for kind, target in (("MOVED", other), ("ASK", stranger), ("ASK", other)):
        text = await refused(client, "EVAL", SAY, 1, KEY, f"{kind} {SLOT} {target.endpoint}")
        assert text == (
            f"{kind} to {target.endpoint} is not followed: "
            "endpoint_policy allows configured addresses only"
        )
    assert refreshes([allowed]) == asked  # there is nothing to ask
    assert {node.name for node in client.client.get_nodes()} == {allowed.endpoint}
    assert connections(other) == before + 1  # that is this question's own


async def test_a_strict_policy_with_a_list_of_the_whole_cluster_is_like_none(
    connect: Connector, shard: RedisClusterServers
) -> None:
    policy = EndpointPolicy(node.endpoint for node in shard.nodes)
    client = await connect.ours(shard, "latency_based_replicas", endpoint_policy=policy)
    log = await client.reads(count=60)
    assert log.errors == []
    assert set(client.stats()) == {node.endpoint for node in shard.nodes}


async def test_a_policy_can_map_addresses(connect: Connector, lonely: RedisClusterServers) -> None:
    source = owner(lonely, KEY)
    target = the_other(lonely, source)
    with Liar(source) as at_source, Liar(target) as at_target:
        mapping = {source.endpoint: at_source.endpoint, target.endpoint: at_target.endpoint}
        policy = EndpointPolicy(endpoint_map=mapping)
        client = await connect.ours(at_source, "latency_based", endpoint_policy=policy)
        await client.set(KEY, "value")
        move(lonely, KEY, source, target)
        assert await client.get(KEY) == "value"
        move(lonely, KEY, target, source)
        assert await client.get(KEY) == "value"
        assert {node.name for node in client.client.get_nodes()} == set(mapping.values())
        assert set(client.stats()) == set(mapping.values())
        await connect.close()


async def test_an_existing_client_can_be_given_a_strict_policy(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """Nodes that it knew and that are not allowed leave its topology."""
    client = await connect.stock(shard)
    if not hasattr(client.client, "startup_nodes"):
        pytest.skip(f"a client of {library.TITLE} does not remember the nodes it was given")
    await client.reads(count=10)
    allowed = [shard.nodes[0].endpoint, shard.nodes[1].endpoint]
    client.balancer = use_strategy(
        client.client, "latency_based", endpoint_policy=EndpointPolicy(allowed)
    )
    log = await client.reads(count=50)
    assert log.errors == []
    assert {node.name for node in client.client.get_nodes()} == set(allowed) == set(client.stats())
    use_strategy(client.client, None)
    client.balancer = None
    assert client.client.nodes_manager.address_remap is None
    assert await client.get("key:0") == "key:0"


async def test_switching_back_returns_address_remap(
    connect: Connector, shard: RedisClusterServers
) -> None:
    def remap(address: tuple[str, int]) -> tuple[str, int]:
        return address

    client = await connect.ours(shard, "latency_based", address_remap=remap)
    use_strategy(client.client, "hybrid")
    use_strategy(client.client, None)
    assert client.client.nodes_manager.address_remap is remap
    assert await client.get("key:0") == "key:0"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"endpoint_policy": "strict"}, TypeError, "must be an EndpointPolicy, got 'strict'"),
        (
            {"endpoint_policy": EndpointPolicy(), "load_balancing_strategy": "round_robin"},
            ValueError,
            "endpoint_policy has no effect with load_balancing_strategy='round_robin'",
        ),
        (
            {"endpoint_policy": EndpointPolicy(), "load_balancing_strategy": None},
            ValueError,
            "endpoint_policy has no effect with load_balancing_strategy=None",
        ),
    ],
)
async def test_a_policy_that_is_none_or_has_no_effect_is_an_error(
    connect: Connector,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    shard: RedisClusterServers,
) -> None:
    strategy = options.get("load_balancing_strategy", "latency_based")
    policy = options["endpoint_policy"]
    with pytest.raises(error, match=message):
        await connect.ours(shard, strategy, endpoint_policy=policy)
    client = await connect.stock(shard)
    with pytest.raises(error, match=message):
        use_strategy(client.client, strategy, endpoint_policy=policy)


async def test_an_uncovered_slot_is_named_as_such(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """redis-py 8.1 asyncio raises KeyError, which its own retries do not know."""
    client = await connect.ours(shard, "latency_based", **connect.retries(0))
    pipes = library.HAS_RETRY or client.mode == "sync"  # else with 0 retries they never begin
    manager = client.client.nodes_manager
    slot = key_slot(b"key:0")
    for nodes in (list[Any](), None):
        manager.slots_cache.pop(slot, None)
        if nodes is not None:
            manager.slots_cache[slot] = nodes
        for command in (("get", "key:0"), ("set", "key:0", "v")):
            with pytest.raises(library.errors.SlotNotCoveredError, match=str(slot)):
                await client.call(*command)
            if pipes:
                with pytest.raises(library.errors.SlotNotCoveredError, match=str(slot)):
                    await client.pipeline([command])
            manager.slots_cache.pop(slot, None)
    assert client.total("in_flight") == 0
