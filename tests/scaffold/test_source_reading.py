"""What is read off the source of nodes: the answer that lets one go on that waits, and how often one calls its model."""

import importlib
import sys

import pytest
from langgraph.graph import START, StateGraph

from vinelm.adapters.langgraph.structure.call_counts import repeating_nodes, skipping_nodes
from vinelm.scaffold.interrupts import waiting_nodes
from vinelm.scaffold.plain_code import Fields, fields_read

HEAD = """
import asyncio
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import PromptTemplate
from langgraph.types import interrupt
from packaging.utils import canonicalize_name
llm = FakeListChatModel(responses=["yes"])
chain = llm.with_retry()
class Shop:
    def invoke(self, text): return text
shop = Shop()
def helper(text): return chain.invoke(text)
LINES = ("a", "b")
"""


@pytest.fixture
def graph(tmp_path, monkeypatch):
    """Makes a graph of one node, whose function has this body."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(body, kind="def"):
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        (tmp_path / "source_of_a_node.py").write_text(f"{HEAD}{kind} node(state):\n{lines}")
        sys.modules.pop("source_of_a_node", None)
        importlib.invalidate_caches()
        builder = StateGraph(dict)
        builder.add_node("node", importlib.import_module("source_of_a_node").node)
        builder.add_edge(START, "node")
        return builder.compile()

    yield make
    sys.modules.pop("source_of_a_node", None)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ('said = interrupt("?")\nreturn {"ok": said == "accept"}', '"accept"'),
        ('said = interrupt("?")\nreturn {"ok": said.lower() in ("no", "yes")}', '"yes"'),
        ('return {"ok": interrupt("?") == "approve"}', '"approve"'),
        ('if interrupt("?"):\n    return {}', "True"),
        ('said = interrupt("?")\nmatch said["do"]:\n    case "stop" | "continue":\n        return 1', '{"do": "continue"}'),
        ('said = interrupt({"q": "?"})\nreturn {"said": said["data"]}', '{"data": "Go on."}'),
        ('said = interrupt([{}])[0]\nreturn {"ok": said.get("type") == "accept"}', '[{"type": "accept"}]'),
        ("return {'ok': interrupt('?') == 'say \"go\"'}", r'"say \"go\""'),
        ('return {"said": interrupt("?")}', None),
    ],
)  # fmt: skip
def test_the_answer_that_lets_a_node_go_on(graph, body, answer):
    assert waiting_nodes(graph(body)) == {"node": answer}


def test_an_inbox_is_answered_by_what_it_allows(graph):
    body = 'said = interrupt([{"config": {"allow_accept": True}}])[0]\nreturn {"ok": said["type"]}'
    answer = eval(f"lambda value: {waiting_nodes(graph(body))['node']}")
    asked = [{"config": {"allow_accept": True}}, {"config": {"allow_accept": False}}]
    assert [one["type"] for one in answer(asked)] == ["accept", "response"]


@pytest.mark.parametrize(
    ("body", "in_loop"),
    [
        ("return llm.invoke(1)", None),
        ("if state:\n    return llm.invoke(1)\nreturn llm.invoke(2)", None),
        ("if state:\n    a = llm.invoke(1)\nelse:\n    a = helper(2)\nreturn a", None),
        ("shop.invoke(1)\nreturn llm.invoke(shop.invoke(2))", None),
        ("for one in state:\n    shop.invoke(one)\nreturn llm.invoke(1)", None),
        ("for one in state:\n    llm.invoke(one)", True),
        ("while not llm.invoke(1):\n    pass", True),
        ("return [chain.invoke(one) for one in state]", True),
        ("llm.invoke(1)\nreturn chain.invoke(2)", False),
        ("llm.invoke(1)\nreturn helper(2)", False),
        ("try:\n    return llm.invoke(1)\nexcept ValueError:\n    return llm.invoke(2)", False),
        ('model = llm.bind(stop="x")\nmodel.invoke(1)\nreturn model.invoke(2)', False),
        ("for _ in state:\n    try:\n        return llm.invoke(1)\n    except ValueError:\n        pass", None),
        ("while True:\n    try:\n        a = llm.invoke(1)\n    except ValueError:\n        continue\n    return a", None),
        ("for _ in state:\n    a = llm.invoke(1)\n    if a:\n        return a", True),
        ("prompt = PromptTemplate.from_template('{a}')\nreturn llm.invoke(prompt.invoke({'a': 1}))", None),
        ("made = PromptTemplate.from_template('{a}') | llm\nmade.invoke(1)\nreturn made.invoke(1)", False),
    ],
)
def test_nodes_that_may_call_a_model_again(graph, body, in_loop):
    assert repeating_nodes(graph(body), ["node"]) == ({} if in_loop is None else {"node": in_loop})


def test_calls_that_are_gathered_may_be_none(graph):
    body = "async def one(text):\n    return await llm.ainvoke(text)\n"
    for items, skips in (("state['documents']", ["node"]), ("range(3)", [])):
        gathered = f"{body}return await asyncio.gather(*[one(text) for text in {items}])"
        assert skipping_nodes(graph(gathered, "async def"), ["node"]) == skips


def test_a_coroutine_is_read_like_a_function(graph):
    assert repeating_nodes(graph("for one in state:\n    await llm.ainvoke(one)", "async def"), ["node"]) == {"node": True}


HEDGED = """
def parsed(mail, *, most=1):
    return mail["author"], mail.get("subject")


def names(mail):
    return parsed(mail=mail)


def node(state):
    text = names(state["mail"])
    return {"thread": text, "other": parsed(state["else"])}
"""


def test_fields_are_read_in_the_functions_that_a_value_is_passed_to(tmp_path, monkeypatch):
    """An e-mail's fields are read by the parser of an application, not by its nodes."""
    (tmp_path / "hedged.py").write_text(HEDGED, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    hedged = importlib.import_module("hedged")
    assert fields_read([hedged.node], "mail") == Fields(names=("author", "subject"), needed=("author",))


@pytest.mark.parametrize(
    ("body", "skips"),
    [
        ("if state:\n    llm.invoke('?')", True),
        ("if interrupt('?'):\n    return {}\nreturn llm.invoke('?')", True),  # LangGraph's own
        ("if shop.invoke('?'):\n    return {}\nreturn llm.invoke('?')", True),
        (
            "if state:\n    return canonicalize_name(llm)\nreturn llm.invoke('?')",
            False,
        ),  # a package's may call what it is given
        ("if state:\n    return state['call']('?')\nreturn llm.invoke('?')", False),
        ("run = helper\nif state:\n    return run('?')\nreturn llm.invoke('?')", False),
        ("return helper('?') if state else {}", False),  # not told apart: it counts as a call
        ("for one in state['documents']:\n    llm.invoke(one)", True),  # a search may find nothing
        ("for one in sorted(state):\n    llm.invoke(one)\nreturn llm.invoke('?')", False),
        ("for _ in range(3):\n    llm.invoke('?')", False),
        ("for one in ('a', 'b'):\n    llm.invoke(one)", False),
        ("for one in LINES:\n    llm.invoke(one)", False),  # a constant with values
        ("while state:\n    llm.invoke('?')", False),
        ("return [llm.invoke(one) for one in state['documents']]", True),
        ("return [llm.invoke(one) for one in llm.invoke('?')]", False),
        ("return [llm.invoke(one) for one in LINES]", False),
    ],
)
def test_a_node_ends_without_a_call_only_if_nothing_might_be_one(graph, body, skips):
    assert skipping_nodes(graph(body), ["node"]) == (["node"] if skips else [])
