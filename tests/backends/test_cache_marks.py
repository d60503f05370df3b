"""Cache points in what is really sent: over a socket, by the unmodified SDKs, from this process and from forked units."""

import asyncio
import datetime
from types import SimpleNamespace

import pytest
from kit.optional import needs
from kit.wire import openai_format
from kit.wire.anthropic_format import answering, prompt_of
from kit.wire.client import KEY, MODES, Client
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from vinelm.backends.registry import create_backends
from vinelm.backends.remote.marks import ControlMarks, PointMarks, prompt_parts
from vinelm.backends.remote.meter import ModelRequest
from vinelm.catalog import Catalog, Price
from vinelm.errors import ConfigError
from vinelm.profiler import ExecutionConfig, ProfileSettings, RayCluster, WorkflowSource
from vinelm.profiler.executor import make_worker
from vinelm.requests.workflow import Request

PRICE = Price(input=3, output=15, cached=0.3, cache_write=3.75, source="t", as_of=datetime.date(2026, 1, 1))
ROLE = SystemMessage("You answer in one word. " * 400)
MARK = {"type": "ephemeral"}


@pytest.fixture
def client(transport, kept, monkeypatch):
    needs("langchain_anthropic")
    monkeypatch.setenv("MY_KEY", KEY)

    def make(**how):
        url = transport.url.removesuffix("/v1")
        return kept(Client(url, **{"provider": "anthropic", "api_key_env": "MY_KEY", "price": PRICE, **how}))

    return make


def marks_of(body):
    turns = [turn["content"] for turn in body["messages"] if isinstance(turn["content"], list)]
    system = body.get("system", [])
    parts = [*body.get("tools", []), *(system if isinstance(system, list) else []), *[part for turn in turns for part in turn]]
    return [number for number, part in enumerate(parts) if part.get("cache_control") == MARK]


@pytest.mark.parametrize("mode", MODES)
def test_the_instructions_are_marked(transport, client, mode):
    transport.answers(answering("four"))
    made = client(cache_points="auto")
    made.ask(mode, [ROLE, HumanMessage("2 + 2?")])
    body = transport.asked[0].json
    assert marks_of(body) == [0]
    assert body["messages"] == [{"role": "user", "content": "2 + 2?"}]


def test_without_cache_points_and_where_the_application_marks_the_request_stays_as_it_is(transport, client):
    transport.answers(answering("four"))
    own = HumanMessage([{"type": "text", "text": "x" * 9000, "cache_control": {**MARK, "ttl": "1h"}}])
    client().ask("invoke", [ROLE, HumanMessage("2 + 2?")])
    client(cache_points="auto").ask("invoke", [ROLE, own])
    plain, marked = (asked.json for asked in transport.asked)
    assert marks_of(plain) == marks_of(marked) == []
    assert marked["messages"][0]["content"][0]["cache_control"] == {**MARK, "ttl": "1h"}


def test_a_reservation_covers_a_write_of_the_whole_prompt(client):
    messages = [ROLE, HumanMessage("2 + 2?")]
    plain, marked = client(), client(cache_points="auto")
    ratio = marked.backend.upper_bound_usd(marked.model, messages) / plain.backend.upper_bound_usd(plain.model, messages)
    assert 1.1 < ratio <= 1.25


def test_calls_of_a_profile_wait_for_the_first_one(transport, client):
    """Four calls at once: one writes, and the others read what it has written."""
    order = []

    async def reply(asked, out):
        order.append(("asked", prompt_of(asked)))
        await asyncio.sleep(0.05)
        order.append(("answered", prompt_of(asked)))
        return await answering("four")(asked, out)

    transport.answers(reply)
    made = client(cache_points="auto")

    async def ask():
        chats = [made.chat() for _ in range(4)]
        for chat in chats:
            chat.binding.call.request = Request("r", {})
        await asyncio.gather(*[chat.ainvoke([ROLE, HumanMessage(str(n))]) for n, chat in enumerate(chats)])

    asyncio.run(ask())
    assert [what for what, _ in order[:2]] == ["asked", "answered"]
    assert [what for what, _ in order[2:5]] == ["asked"] * 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"provider": "gemini"}, "takes no cache marks"),
        ({"provider": "simulated"}, "takes no cache marks"),
        ({"price": Price(input=1, output=1, source="t", as_of=datetime.date(2026, 1, 1))}, "nothing is saved"),
    ],
)
def test_cache_points_without_effect_are_an_error(fields, words):
    from kit.wire.client import entry

    model = entry("http://localhost:9", **{"provider": "openai", "cache_points": "auto", "price": PRICE, **fields})
    with pytest.raises(ConfigError, match=words) as raised:
        create_backends(Catalog([model]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("whose", ["workflow", "judge"])
def test_a_ray_cluster_refuses_them_in_one_line(whose):
    from kit.wire.client import entry

    plain, marked = (Catalog([entry(None, price=PRICE, cache_points=mode)]) for mode in ("off", "auto"))
    judge = SimpleNamespace(models=SimpleNamespace(catalog=marked if whose == "judge" else plain, backends={}))
    catalog = marked if whose == "workflow" else plain
    units = SimpleNamespace(catalog=catalog, backends={}, judging=judge, template=None, is_virtual_time=True)
    source = WorkflowSource(function="none:none")
    execution = ExecutionConfig(isolation="process", source=source, cluster=RayCluster())
    with pytest.raises(ConfigError, match=r"has no effect on a Ray cluster.*without --engine ray"):
        make_worker(ProfileSettings(execution=execution), units, {})


def test_openai_is_told_which_calls_belong_together(transport, kept, monkeypatch):
    """Its own servers: others may refuse what they do not know."""
    from vinelm.backends.openai.provider import OpenAIProvider

    monkeypatch.setenv("MY_KEY", KEY)
    made = kept(Client(transport.url, price=PRICE, api_key_env="MY_KEY", cache_points="auto"))
    for is_its_own in (True, False):
        monkeypatch.setattr(OpenAIProvider, "keeps_by_key", lambda self, model, its=is_its_own: its)
        transport.answers(openai_format.answering("four"))
        for question in "ab":
            made.ask("invoke", [ROLE, HumanMessage(question)])
        keys = [asked.json.get("prompt_cache_key") for asked in transport.asked]
        assert keys[0] == keys[1]
        assert (keys[0] is not None) is is_its_own


CALL = {"name": "look", "args": {"x": 1}, "id": "t1", "type": "tool_call"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
MESSAGES = [
    ROLE,
    HumanMessage("q"),
    AIMessage("hm", tool_calls=[CALL]),
    ToolMessage("found", tool_call_id="t1"),
    HumanMessage("so?"),
]


def request(messages, tools):
    return ModelRequest(messages=messages, stop=None, options={"tools": tools}, limit=9, answers=1, is_streamed=False)


def test_every_part_of_a_conversation_with_tools_can_be_marked():
    asked = request(MESSAGES, [TOOL])
    assert len(prompt_parts(asked)) == 6
    for index in range(6):
        messages, options = ControlMarks().placed(asked, (index,))
        blocks = [part for message in messages if isinstance(message.content, list) for part in message.content]
        marked = [one for one in (*options["tools"], *blocks) if one.get("cache_control") == MARK]
        assert len(marked) == 1
        assert ("function" in marked[0]) is (index == 0)
        assert prompt_parts(request(messages, options["tools"])) == []  # what is marked already is left alone
    assert asked.messages == MESSAGES


def test_bedrock_has_blocks_of_their_own_for_marks():
    point = {"cachePoint": {"type": "default"}}
    messages, options = PointMarks().placed(request(MESSAGES, [TOOL]), (0, 1, 2))
    assert options["tools"] == [TOOL, point]
    assert [message.content[-1] for message in messages[:2]] == [point, point]
    assert messages[2:] == MESSAGES[2:]


def test_the_role_of_a_conversation_is_marked_wherever_it_stands():
    moved = [HumanMessage("q"), ROLE]
    messages, _ = ControlMarks().placed(request(moved, []), (0,))
    assert messages[0] == moved[0]
    assert messages[1].content[0]["cache_control"] == MARK
