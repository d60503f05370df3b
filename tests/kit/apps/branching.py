"""Small graphs that branch, written as LangGraph's tutorials write them, and a policy that keeps what it is asked."""

import operator
from typing import Annotated, Literal

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from kit.apps.echo import EchoBackend
from kit.catalogs import make_catalog
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.backends.resolver import ModelResolver
from vinelm.policies import DefaultPolicy
from vinelm.template import Branch, Loop, Parallel, Stage, Template


class State(TypedDict, total=False):
    """``plan`` holds the decisions that the scripted application takes, in order."""

    plan: list
    log: Annotated[list, operator.add]


def taken(state, kind):
    """How many decisions of that kind were taken: entries of the log are ``stage`` or ``tool``."""
    return state.get("log", []).count(kind)


def stages(vine, mode, *names):
    """A node for each stage, which logs its name and the model that answered."""

    def one(name):
        def run(state: State, model):
            return {"log": [name, model.invoke("?").content]}

        async def arun(state: State, model):
            return {"log": [name, (await model.ainvoke("?")).content]}

        return vine.stage(name, run if mode == "sync" else arun, state=State)

    return [(name, one(name)) for name in names]


ROUTER = Template(
    (
        Stage("router", answerable=False),
        Branch({"search": (Stage("search"), Stage("grade", answerable=False)), "chat": (), "refuse": "__end__"}),
        Stage("write"),
    )
)


def router(vine, mode="sync"):
    """router -> search -> grade -> write, or -> write, or -> END."""
    graph = StateGraph(State)
    for name, node in stages(vine, mode, "router", "search", "grade", "write"):
        graph.add_node(name, node)
    graph.add_edge(START, "router")
    to = {"search": "search", "chat": "write", "refuse": END}
    graph.add_conditional_edges("router", vine.route(lambda state: state["plan"][0], to=to))
    graph.add_edge("search", "grade")
    graph.add_edge("grade", "write")
    graph.add_edge("write", END)
    return graph


CORRECTIVE = Template((Loop((Stage("generate"), Stage("grade"), Stage("rewrite", answerable=False)), times=3),))


def corrective(vine, mode="sync", *, times=None):
    """retrieve (a tool) -> generate -> grade -> END, or rewrite -> retrieve again."""
    graph = StateGraph(State)
    for name, node in stages(vine, mode, "generate", "grade", "rewrite"):
        graph.add_node(name, node)
    graph.add_node("retrieve", lambda state: {"log": ["retrieve"]})
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "generate")
    graph.add_edge("generate", "grade")
    graph.add_edge("rewrite", "retrieve")

    def decide(state) -> Literal["rewrite", "__end__"]:
        return state["plan"][taken(state, "grade") - 1]

    graph.add_conditional_edges("grade", vine.route(decide, to=["rewrite", END], times=times))
    return graph


SUPERVISOR = Template((Loop((Stage("supervisor"), Branch({"law": (Stage("law"),), "tax": (Stage("tax"),)})), times=3),))


def supervisor(vine, mode="sync"):
    """A supervisor that hands over by Command(goto=...) until it ends."""
    graph = StateGraph(State)

    def decide(state):
        return state["plan"][taken(state, "supervisor")]

    def run(state: State, model) -> Command[Literal["law", "tax", "__end__"]]:
        return Command(goto=decide(state), update={"log": ["supervisor", model.invoke("?").content]})

    async def arun(state: State, model) -> Command[Literal["law", "tax", "__end__"]]:
        return Command(goto=decide(state), update={"log": ["supervisor", (await model.ainvoke("?")).content]})

    graph.add_node("supervisor", vine.stage("supervisor", run if mode == "sync" else arun))
    for name, node in stages(vine, mode, "law", "tax"):
        graph.add_node(name, node)
        graph.add_edge(name, "supervisor")
    graph.add_edge(START, "supervisor")
    return graph


EXPERTS = Template((Parallel((Stage("law", answerable=False), Stage("tax", answerable=False))), Stage("judge")))


def experts(vine, mode="sync"):
    """Two experts side by side, then a judge."""
    graph = StateGraph(State)
    for name, node in stages(vine, mode, "law", "tax", "judge"):
        graph.add_node(name, node)
    graph.add_edge(START, "law")
    graph.add_edge(START, "tax")
    graph.add_edge(["law", "tax"], "judge")
    graph.add_edge("judge", END)
    return graph


def control_of(template, backend=None, n_models=3):
    """An adapter for that template over models m0, m1, ..."""
    models = ModelResolver(make_catalog(n_models), {"test": backend or EchoBackend()})
    return GraphAdapter(models, template=template)


class Asked(DefaultPolicy):
    """Gives the models of ``models`` by stage (else m0), ends where ``ends`` says, and keeps its questions."""

    def __init__(self, vine, models=None, ends=()):
        super().__init__(lambda stage: "m0", clock=vine.new_clock(), template=vine.template)
        self.models, self.ends = models or {}, ends
        self.asked, self.edges, self.inherited = [], [], []

    def next_model(self, stage, prefix):
        self.asked.append((stage, prefix))
        return self.models.get(stage, "m0")

    def should_continue(self, prefix, finished, state, arms=None):
        self.edges.append((prefix, finished, arms))
        return not finished and len(prefix) not in self.ends

    def resumed(self, prefix, costs_usd, stages=()):
        self.inherited.append((prefix, stages))
