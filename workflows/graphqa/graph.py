"""The graph of the workflow: a classifier, a branch with one code action, and a branch of plan, code actions and reasoning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage

from vinelm.errors import DatasetError
from vinelm.requests.protocols import CallsInText, Vine
from vinelm.workflows.graphqa import prompts
from vinelm.workflows.graphqa.act import run_snippet
from vinelm.workflows.graphqa.literal_calls import LiteralCalls
from vinelm.workflows.graphqa.source import GraphSource

FACTS_CHARS = 1200
"""The maximum number of characters of printed facts in an entry of the notebook."""
RETRIEVE = "retrieve_node"
"""The name of the tool that finds a node."""


class GraphState(TypedDict, total=False):
    """The workflow state, in JSON types only, so that checkpoints round-trip.

    ``graph`` is the name of the queried graph if there are several; ``arm`` is the branch that the classifier chose.
    ``missing`` describes the facts to look up, and ``edges`` has the types of edges that lead to them. ``notebook`` has what
    the snippets printed or why they failed. ``code`` is the last snippet (None if the model wrote none), ``printed`` what it
    printed, and ``error`` why it failed. ``shown`` is the outcome of the last stage, which is the signal; see :func:`signal`.
    ``answer`` is None or missing until the question is answered.
    """

    question: str
    graph: str
    arm: str
    missing: str
    edges: list[str]
    notebook: list[str]
    code: str | None
    printed: str
    error: str | None
    shown: str | None
    answer: str | None


class GraphStages:
    """The workflow's stage functions, and the tool that runs snippets; ``sources`` are the graphs to query, by name."""

    def __init__(self, sources: Mapping[str, GraphSource]) -> None:
        self.sources = sources

    def source(self, state: Mapping[str, Any]) -> GraphSource:
        """Return the graph that a request asks about; raise :class:`DatasetError` for an unknown name."""
        name = state.get("graph", "")
        if name not in self.sources:
            raise DatasetError(f"no graph is called {name!r}: use one of {', '.join(map(repr, self.sources))}")
        return self.sources[name]

    def classify(self, state: GraphState, model: Any) -> GraphState:
        """Let the model choose the branch, with one call; return the changed keys of the state."""
        return {"arm": prompts.arm_of(_asked(model, prompts.CLASSIFY, f"Question: {state['question']}")), "shown": None}

    def act_direct(self, state: GraphState, model: Any) -> GraphState:
        """Let the model write the snippet that prints the answer, with one call; return the changed keys of the state."""
        system = prompts.act_system(self.source(state).schema())
        return _written(model, system, prompts.act_prompt(state["question"], state.get("code"), state.get("error")))

    def plan(self, state: GraphState, model: Any) -> GraphState:
        """Let the model list the facts to look up and the types of edges that lead to them, with one call.

        Returns the changed keys of the state.
        """
        return self._thought(model, prompts.PLAN, f"Question: {state['question']}", state)

    def act(self, state: GraphState, model: Any) -> GraphState:
        """Let the model write a snippet that finds the missing facts, with one call; return the changed keys of the state.

        The prompt has the types of edges that the plan names, but not the outputs of earlier snippets.
        """
        system = prompts.act_system(self.source(state).schema(state["edges"]))
        return _written(model, system, prompts.act_prompt(state["missing"], state.get("code"), state.get("error")))

    def reason(self, state: GraphState, model: Any) -> GraphState:
        """Let the model answer the question from what the snippets printed, or say which facts are missing, with one call.

        Returns the changed keys of the state.
        """
        return self._thought(model, prompts.REASON, prompts.reason_prompt(state["question"], state.get("notebook", [])), state)

    def run(self, state: GraphState, retrieve: Callable[[str], str]) -> GraphState:
        """Run the last snippet, and append what it printed, or why it failed, to the state's ``notebook``.

        Returns the changed keys of the state. This is a tool, without a model call. ``retrieve`` returns the id of the node
        with a given name.
        """
        code = state.get("code")
        if code is None:
            return _noted(state, "form", "", "there was no snippet: write one ```python block")
        is_direct = state["arm"] == "direct"
        functions = self.source(state).functions(None if is_direct else state["edges"])
        ran = run_snippet(code, {**functions, "RetrieveNode": retrieve})
        if ran.status != "ok":
            return _noted(state, "refused" if ran.status == "refused" else "code error", ran.printed, ran.error)
        if ran.is_cut:
            return _noted(state, "code error", "", "it printed more than 4 kB: print less")
        if not ran.printed:
            return _noted(state, "empty", "", "it ran and printed nothing")
        return _noted(state, "finished" if is_direct else "facts", ran.printed, None)

    def _thought(self, model: Any, role: str, prompt: str, state: GraphState) -> GraphState:
        source = self.source(state)
        said = prompts.reasoned(_asked(model, f"{role}\n\n{source.schema()}", prompt), source.edge_types)
        facts = state.get("printed", "") if state.get("error") is None else ""
        answer = facts if said.answer == "#" else said.answer
        if answer and role is prompts.REASON:
            return {"answer": answer, "shown": "finished"}
        edges = sorted({*state.get("edges", ()), *said.edges}) or list(source.edge_types)
        shown = None if said.answer or said.missing else "form"
        missing = said.missing or state.get("missing", state["question"])
        return {"missing": missing, "edges": edges, "shown": shown, "answer": None}


def finished(state: Mapping[str, Any]) -> bool:
    """Return whether the workflow's own check passes, that is, whether there is an answer."""
    return bool(state.get("answer"))


def signal(state: Mapping[str, Any]) -> str | None:
    """Return the workflow's signal, which is the outcome of the last stage; None if that stage has no outcome.

    ``finished`` means that there is an answer, ``facts`` that a snippet printed facts, and ``empty`` that it printed nothing.
    ``code error`` means that the snippet failed, ``refused`` that its syntax is not allowed, and ``form`` that the model's text
    could not be read.
    """
    return state.get("shown")


def _noted(state: GraphState, shown: str, printed: str, error: str | None) -> GraphState:
    entry = error if error is not None else printed
    cut = entry if len(entry) <= FACTS_CHARS else f"{entry[:FACTS_CHARS]}… ({len(entry)} characters)"
    task = state["question"] if state["arm"] == "direct" else state["missing"]
    notebook = prompts.noted(state.get("notebook", []), f"{task} -> {cut}" if error is None else f"{task} failed: {cut}")
    answer = printed if shown == "finished" else None
    return {"notebook": notebook, "printed": printed, "error": error, "shown": shown, "answer": answer}


def _graph_of(state: Mapping[str, Any]) -> dict[str, str]:
    return {"graph": state["graph"]} if "graph" in state else {}


def _written(model: Any, system: str, prompt: str) -> GraphState:
    return {"code": prompts.code_of(_asked(model, system, prompt))}


def _asked(model: Any, system: str, prompt: str) -> str:
    return str(model.invoke([SystemMessage(system), HumanMessage(prompt)]).text)


def retriever(vine: Vine, stages: GraphStages) -> Callable[[Mapping[str, Any], Any], str]:
    """Return a function of a state and a name, which returns the id of the node with this name in the state's graph.

    It calls the read-only tool :data:`RETRIEVE`, so that calls can be prefetched.
    """

    def retrieve_node(text: str, graph: str = "") -> str:
        """Return the id of the node with the name ``text`` in the graph named ``graph``."""
        return stages.source({"graph": graph}).retrieve(text)

    tool = vine.tool(retrieve_node, read_only=True)

    def retrieve(state: Mapping[str, Any], text: Any) -> str:
        if not isinstance(text, str):  # a model's mistake: the source reports it, and the tool's schema would not
            return stages.source(state).retrieve(text)
        return str(tool.invoke({"text": text, **_graph_of(state)}))

    return retrieve


def make_build(sources: Mapping[str, GraphSource]) -> Callable[[Vine], Any]:
    """Return the function ``build(vine)``, which returns the workflow's uncompiled ``StateGraph``.

    The graph's input is ``question``, and ``graph`` if there are several graphs.
    """
    stages = GraphStages(sources)

    def build(vine: Vine) -> Any:
        from langgraph.graph import END, START, StateGraph

        retrieve = retriever(vine, stages)

        def eager(state: GraphState) -> CallsInText:
            graph, calls = _graph_of(state), LiteralCalls("RetrieveNode")
            return lambda piece: [(RETRIEVE, {"text": text, **graph}) for text in calls(piece)]

        def run(state: GraphState) -> GraphState:
            return stages.run(state, partial(retrieve, state))

        graph = StateGraph(GraphState)
        for name in ("classify", "act_direct", "plan", "act", "reason"):
            writes_code = name in ("act_direct", "act")
            graph.add_node(name, vine.stage(name, getattr(stages, name), eager=eager if writes_code else None))
        graph.add_node("run_direct", run)
        graph.add_node("run", run)
        graph.add_node("finish", vine.finish)
        graph.add_edge(START, "classify")
        arms = {"direct": "act_direct", "multi_hop": "plan"}
        graph.add_conditional_edges("classify", lambda state: arms[state["arm"]], list(arms.values()))
        graph.add_edge("act_direct", "run_direct")
        graph.add_conditional_edges(
            "run_direct", vine.route(finished, again="act_direct", end="finish"), ["act_direct", "finish"]
        )
        graph.add_edge("plan", "act")
        graph.add_edge("act", "run")
        graph.add_edge("run", "reason")
        graph.add_conditional_edges("reason", vine.route(finished, again="act", end="finish"), ["act", "finish"])
        graph.add_edge("finish", END)
        return graph

    return build
