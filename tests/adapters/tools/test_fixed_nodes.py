"""Tools that a node of the graph calls, behind a branch: they start while the stage before it thinks, by its probability."""

import threading

import numpy as np
import pytest
from kit.apps.echo import run
from kit.catalogs import make_catalog
from kit.tries import SPECIALISTS, routed
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import Catalog, Objective, Speculation, VineLM
from vinelm.controller import Planner, Session
from vinelm.errors import ConfigError

MODES = ("sync", "async")
PRICES = {"input": 0.0, "output": 0.0, "source": "test", "as_of": "2026-11-01"}
QUICK = Objective(minimize="latency")


class Mind(BaseChatModel):
    """Says where to go, once the test lets it."""

    app: object

    @property
    def _llm_type(self):
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.app.gate()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.app.goes_to))])


class State(TypedDict, total=False):
    account: str
    arm: str
    found: str
    answers: list


class App:
    """router -> the node `invoices`, which calls a tool -> billing; or -> technical -> review."""

    def __init__(self, goes_to="billing", *, ahead=lambda state: {"account": state["account"]}, before="billing", **settings):
        self.goes_to, self.log, self.looked = goes_to, [], threading.Event()
        self.gate = lambda: None
        mind = Mind(app=self)
        catalog = Catalog.from_chat_models({"m0": mind, "m1": mind}, prices={"m0": PRICES, "m1": PRICES})
        self.vine = VineLM(catalog, template=SPECIALISTS, **settings)

        @self.vine.tool(read_only=True, ahead=ahead, before=before)
        def invoices(account: str) -> str:
            """Return the invoices of an account."""
            self.log.append(threading.current_thread().name == "vinelm-read-ahead")
            self.looked.set()
            return f"invoices of {account}"

        self.invoices = invoices

    def graph(self):
        graph = StateGraph(State)
        graph.add_node("router", self.vine.stage("router", lambda state, model: {"arm": model.invoke("?").text}, state=State))
        graph.add_node("invoices", lambda state: {"found": self.invoices.invoke({"account": state["account"]})})
        for name in ("billing", "technical", "review"):
            graph.add_node(name, self.vine.stage(name, lambda state, model: {"answers": [state.get("found")]}, state=State))
        graph.add_edge(START, "router")
        graph.add_conditional_edges(
            "router", self.vine.route(lambda state: state["arm"], to={"billing": "invoices", "technical": "technical"})
        )
        graph.add_edge("invoices", "billing")
        graph.add_edge("technical", "review")
        graph.add_edge("billing", END)
        graph.add_edge("review", END)
        return graph.compile()

    def answer(self, mode="sync", objective=QUICK, **speculation):
        context = self.vine.context(objective, speculate=Speculation(**speculation))
        return run(self.graph(), mode, {"account": "mia"}, context=context)["answers"]


def waits(app):
    """Let the router answer only after the tool was called: it is called while the router thinks, or never."""
    app.gate = lambda: app.looked.wait(5) or pytest.fail("nothing ran ahead")


@pytest.mark.parametrize("mode", MODES)
def test_the_tool_of_an_arm_runs_while_the_router_thinks(mode):
    app = App()
    app.vine.load(routed())
    waits(app)
    assert app.answer(mode) == ["invoices of mia"]
    assert app.log == [True]
    assert app.vine.tool_counts["started"] == 1


def test_an_arm_that_is_not_taken_leaves_a_call_that_nobody_asked_for():
    app = App("technical")
    app.vine.load(routed())
    waits(app)
    assert app.answer() == [None]
    assert app.log == [True]


@pytest.mark.parametrize(
    ("how", "speculation"),
    [
        ({"before": "technical"}, {}),  # 1 in 4
        ({}, {"least_probability": 0.8}),  # 3 in 4
        ({"ahead": lambda state: None}, {}),
        ({"before": "review"}, {}),  # not right after the router
    ],
)
def test_what_is_not_likely_enough_or_not_known_yet_is_an_ordinary_call(how, speculation):
    app = App(**how)
    app.vine.load(routed())
    assert app.answer(**speculation) == ["invoices of mia"]
    assert app.log == [False]


def test_without_a_plan_no_arm_has_a_probability():
    app = App()
    assert app.answer(objective=None) == ["invoices of mia"]
    assert app.log == [False]


def test_arguments_that_cannot_be_told_fail_nothing_and_the_trace_says_so():
    app, session = App(ahead=lambda state: state["nothing"]), Session(Planner(routed()), QUICK)
    context = app.vine.context(policy=session, speculate=Speculation())
    assert app.graph().invoke({"account": "mia"}, context=context)["answers"] == ["invoices of mia"]
    assert [step["note"] for step in session.trace() if step["kind"] == "failed"] == [
        "a read ahead failed (KeyError): default model"
    ]
    strict = App(ahead=lambda state: [state["account"]], on_error="raise")
    strict.vine.load(routed())
    with pytest.raises(Exception, match="tool 'invoices': ahead= returned a list: return its arguments by name, or None"):
        strict.answer()


def test_the_probability_is_the_arms_and_none_where_the_plan_ends():
    session = Session(Planner(routed()), QUICK)
    model = session.next_model("router", ())
    assert session.comes_next((model,), ("billing",)) == pytest.approx(0.75)
    assert session.comes_next((model,), ("billing", "technical")) == pytest.approx(1.0)
    assert session.comes_next((model,), ("review",)) == 0.0
    assert session.comes_next(("nobody",), ("billing",)) is None


def test_a_plan_that_ends_at_the_invocation_calls_nothing_after_it():
    from kit.tables import random_table

    planner = Planner(random_table(3, n_requests=60, n_models=3, depth=3).annotate())
    chances = {}
    for objective in (Objective(minimize="cost"), Objective(maximize="accuracy")):
        session = Session(planner, objective)
        model = session.next_model("generate", ())
        node = planner.trie.node((model,))
        chances[session.decisions[0].target == node] = session.comes_next((model,), planner.trie.stages)
        stop = float(planner.annotated.stop[node])
    assert chances[True] == 0.0
    assert chances[False] == pytest.approx(1.0 - stop)


def test_merged_histories_have_an_arm_for_each_source():
    from kit.tries import random_merged

    from vinelm.template import Branch, Loop, Stage, Template

    inner = (Stage("ask"), Branch({"law": (Stage("law"),), "tax": (Stage("tax"),)}))
    annotated = random_merged(Template((Loop(inner, times=3, memory=1),)).bind(("m0", "m1")), 1)
    trie = annotated.trie
    for node in range(len(trie)):
        found = annotated.comes_next(node)
        wanted = {trie.stages[trie.stage[trie.target[e]]]: annotated.arm[e] for e in np.flatnonzero(trie.source == node)}
        assert found == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"read_only": True, "ahead": dict}, "needs before="),
        ({"read_only": True, "ahead": dict, "before": []}, "needs before="),
        ({"read_only": True, "before": "billing"}, "give ahead= a function"),
        ({"read_only": True, "before": "billing", "ahead": {"x": 1}}, "give ahead= a function"),
        ({"writes": "session", "ahead": dict, "before": "billing"}, "writes, and is never called ahead"),
    ],
)
def test_what_is_refused(how, message):
    def look(item: str) -> str:
        """Look an item up."""
        return item

    with pytest.raises(ConfigError, match=message):
        VineLM(make_catalog(2), template=SPECIALISTS).tool(look, **how)


def test_a_stage_that_the_trie_lacks_is_refused_when_it_is_loaded():
    app = App(before="biling")
    with pytest.raises(ConfigError, match="tool 'invoices': before= names 'biling', which is no stage of the trie: it has bil"):
        app.vine.load(routed())
