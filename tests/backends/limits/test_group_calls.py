"""Calls of a replica group, through real HTTP servers."""

import pytest
from kit.wire.client import MODES, QUICK, Client, entry
from kit.wire.openai_format import answering
from kit.wire.server import WireServer

from vinelm.backends.registry import engine_limiters_of, rate_limiters_of
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog
from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext


@pytest.fixture
def servers():
    made = [WireServer().answers(answering("four")) for _ in range(2)]
    yield made
    for server in made:
        server.stop()


def catalog(servers, **table):
    entries = [entry(server.url, name=f"r{n}", engine=f"e{n}", group="m") for n, server in enumerate(servers)]
    return Catalog(entries, {"openai": {**QUICK, **table}})


class Group(Client):
    """A client of the group."""

    def __init__(self, made):
        self.resolver, self.usages = ModelResolver(made), []
        self.backend = self.resolver.backends["openai"]

    def chat(self):
        call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=self.usages.append)
        return self.resolver.chat_model("m", call, {"timeout_s": 3.0})


@pytest.mark.parametrize("mode", MODES)
def test_a_call_is_answered_and_reported_as_the_group(servers, mode):
    client = Group(catalog(servers))
    assert client.ask(mode).text == "four"
    assert [usage.model for usage in client.usages] == ["m"]
    assert sum(len(server.asked) for server in servers) == 1
    client.close()


def test_a_dead_replica_costs_a_retry_and_is_then_left_alone(servers):
    async def fails(asked, out):
        await out.whole({"error": {}}, 503)

    servers[0].answers(fails)
    client = Group(catalog(servers))
    for _ in range(5):
        assert client.ask("invoke").text == "four"
    assert len(servers[0].asked) == 1
    assert len(servers[1].asked) == 5
    client.close()


def test_limits_are_those_of_each_replica(servers):
    made = catalog(servers, limits={"e0": {"requests_per_min": 1}, "e1": {"requests_per_min": 3}})
    client = Group(made)
    for _ in range(4):
        client.ask("invoke")
    assert [len(server.asked) for server in servers] == [1, 3]
    assert rate_limiters_of(made, client.resolver.backends)["m"].limits.requests_per_min == 4
    assert set(engine_limiters_of(made, client.resolver.backends)) == {"openai:e0", "openai:e1"}
    client.close()
