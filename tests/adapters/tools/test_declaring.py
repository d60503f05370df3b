"""vine.tool: an ordinary LangChain tool comes back, and what cannot be called ahead is refused in one line."""

from typing import Annotated

import pytest
from kit.apps.chat import chat_control
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, Tool, tool
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from vinelm.errors import ConfigError
from vinelm.tools.speculation import Speculation


@pytest.fixture
def vine():
    return chat_control()


@tool(response_format="content_and_artifact", return_direct=True)
def price(item: str, pieces: int = 1) -> tuple[str, int]:
    """The price of pieces of an item."""
    return f"{item}: {pieces * 3}", pieces * 3


class Search(BaseTool):
    name: str = "search"
    description: str = "Search for a text."
    secret: str = "x"

    def _run(self, query: str, run_manager=None) -> str:
        return f"found {query} {self.secret} {run_manager is not None}"


def test_the_tool_stays_what_it_is(vine):
    made = vine.tool(price, read_only=True, cost_usd=0.1, ttl_s=5)
    assert isinstance(made, StructuredTool)
    for field in ("name", "description", "args_schema", "response_format", "return_direct", "func"):
        assert getattr(made, field) == getattr(price, field)
    call = {"type": "tool_call", "id": "1", "name": "price", "args": {"item": "tea", "pieces": 2}}
    assert made.invoke(call) == price.invoke(call)
    assert made.invoke(call).artifact == 6
    assert price.func is made.func


def test_any_kind_of_tool(vine):
    assert vine.tool(Search(secret="y"), read_only=True).invoke("tea") == "found tea y True"
    assert vine.tool(Tool("double", lambda text: text * 2, "Double."), read_only=True).invoke("ab") == "abab"

    @vine.tool(writes="all")
    def book(day: str) -> str:
        """Book a day."""
        return f"booked {day}"

    assert book.invoke({"day": "May 1"}) == "booked May 1"
    assert ToolNode([book]).tools_by_name["book"] is book


def state(q: str, state: Annotated[dict, InjectedState]) -> str:
    """Read."""


def store(q: str, store: Annotated[object, InjectedStore()]) -> str:
    """Read."""


def runtime(q: str, runtime: ToolRuntime) -> str:
    """Read."""


def graph_runtime(q: str, at: Runtime) -> str:
    """Read."""


def call_id(q: str, id_: Annotated[str, InjectedToolCallId]) -> str:
    """Read."""


def injected(q: str, user: Annotated[str, InjectedToolArg]) -> str:
    """Read."""


def commands(q: str) -> Command:
    """Read."""


def listed_commands(q: str) -> list[Command] | str:
    """Read."""


async def streams(q: str):
    """Read."""
    yield q


def asks(q: str) -> str:
    """Read."""
    return interrupt(q)


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (state, "its argument 'state' is injected"),
        (store, "its argument 'store' is injected"),
        (runtime, "its argument 'runtime' is injected"),
        (graph_runtime, "its argument 'at' is injected"),
        (call_id, "its argument 'id_' is injected"),
        (injected, "its argument 'user' is injected"),
        (commands, "it returns a Command"),
        (listed_commands, "it returns a Command"),
        (streams, "it is a generator"),
        (asks, "it interrupts the run"),
    ],
)
def test_what_cannot_be_called_ahead_is_refused(vine, fn, says):
    with pytest.raises(ConfigError, match=f"tool {fn.__name__!r} cannot be read_only: {says}") as refused:
        vine.tool(fn, read_only=True)
    assert "\n" not in str(refused.value)
    if fn is not graph_runtime and fn is not streams:
        vine.tool(fn, writes="session")


def add(a: int) -> int:
    """Add."""
    return a


def undocumented(a: int) -> int:
    return a


@pytest.mark.parametrize(
    ("given", "how", "says"),
    [
        (add, {}, "say read_only=True, or writes="),
        (add, {"read_only": True, "writes": "session"}, "say read_only=True, or writes="),
        (add, {"writes": "world"}, "writes is 'world'"),
        (add, {"read_only": True, "cost_usd": -1.0}, "cost_usd is -1.0"),
        (add, {"read_only": True, "ttl_s": 0.0}, "ttl_s is 0.0"),
        (undocumented, {"read_only": True}, "LangChain makes no tool of it"),
        (3, {"read_only": True}, "was given a int"),
    ],
)
def test_bad_input_gets_one_line(vine, given, how, says):
    with pytest.raises(ConfigError, match=says) as refused:
        vine.tool(given, **how)
    assert "\n" not in str(refused.value)


def test_two_tools_of_one_name_are_refused_and_a_graph_that_is_built_twice_is_not(vine):
    vine.tool(price, read_only=True)
    vine.tool(price, read_only=True)
    with pytest.raises(ConfigError, match="two tools are called 'price'"):
        vine.tool(price, read_only=True, cost_usd=0.1)
    with pytest.raises(ConfigError, match="two tools are called 'price'"):
        vine.tool(StructuredTool.from_function(add, name="price"), read_only=True)
    with pytest.raises(ConfigError, match="is declared already"):
        vine.tool(vine.tool(price, read_only=True), read_only=True)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"waste_usd": -0.1}, "waste_usd is -0.1"),
        ({"waste_usd": float("nan")}, "waste_usd is nan"),
        ({"at_once": 0}, "at_once is 0"),
        ({"at_once": 1.5}, "at_once is 1.5"),
    ],
)
def test_settings_out_of_range(how, says):
    with pytest.raises(ConfigError, match=says):
        Speculation(**how)


def test_settings_without_effect(vine):
    with pytest.raises(ConfigError, match="speculate= has no effect"):
        vine.context(speculate=Speculation())
    vine.tool(add, writes="session")
    with pytest.raises(ConfigError, match="speculate= has no effect"):
        vine.request(speculate=Speculation())
    with pytest.raises(ConfigError, match="speculate is a dict"):
        vine.context(speculate={"at_once": 3})
    vine.tool(price, read_only=True)
    assert vine.context(speculate=Speculation(at_once=2)).speculate.at_once == 2


def test_annotations_whose_text_fails_hide_no_tool(vine):
    def look(word: "1 / 0"):
        return word

    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    plain = StructuredTool(name="look", description="Looks a word up.", func=look, args_schema=schema)
    assert vine.tool(plain, read_only=True).invoke({"word": "a"}) == "a"
