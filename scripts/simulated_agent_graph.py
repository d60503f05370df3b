"""A LangGraph agent in a loop whose simulated models answer as an AgentTruth says, profiled by the real profiler."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from simulated_agent import CHECK_OF_RIGHT, CHECK_OF_WRONG, AgentTruth

from vinelm.backends import OfflineChatModel
from vinelm.backends.offline.chat_model import request_of
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation, Usage
from vinelm.template import Template
from vinelm.traces import ObservationStore


class State(TypedDict, total=False):
    """What the graph keeps."""

    question: str
    answer: str
    seen: str


@dataclass
class AgentBackend:
    """Answers "right" or "wrong", with "done" or "go on" as the agent's own verdict. The same cell always answers alike."""

    truth: AgentTruth
    is_simulated = True
    is_virtual_time = True

    def chat_model(self, model: Any, call: Any) -> Any:
        """Return the chat model of one call."""
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model: Any, call: Any, prompt_chars: int) -> tuple[str, Usage]:
        """Return the answer and what it cost."""
        request = request_of(call, "simulated")
        difficulty = _rng(request.id).normal()
        path = tuple(int(name[1:]) for name in call.prefix)
        rng = _rng(request.id, *call.prefix)
        right, _, _ = self.truth.rates(path[:-1], path[-1], np.array([difficulty]))
        is_right = bool(rng.random() < right[0])
        is_done = bool(rng.random() < (CHECK_OF_RIGHT if is_right else CHECK_OF_WRONG))
        usd, seconds = self.truth.amounts(path[-1], len(path))
        usage = Usage(
            model=model.name, cost_usd=usd * float(rng.lognormal(-0.045, 0.3)),
            latency_s=seconds * float(rng.lognormal(-0.045, 0.3)), tokens_in=100 * len(path), tokens_out=20,
        )  # fmt: skip
        return f"{'right' if is_right else 'wrong'} {'done' if is_done else 'go on'}", usage


def _rng(*parts: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256("/".join(parts).encode()).digest()[:8], "big"))


def agent(state: State, model: Any) -> State:
    """One turn: the model reads what the tool showed, and says whether it is done."""
    return {"answer": model.invoke(f"{state['question']} {state.get('seen', '')}").text}


def tool(state: State) -> State:
    """What the agent looks at next."""
    return {"seen": state["answer"]}


def build(vine: Any) -> Any:
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("agent", vine.stage("agent", agent))
    graph.add_node("tool", tool)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "tool")
    graph.add_conditional_edges(
        "tool", vine.route(lambda state: state["answer"].endswith("done"), again="agent", end=END), ["agent", END]
    )
    return graph


def profiled_agent(
    truth: AgentTruth, template: Template, path: Path, *, n_requests: int, budget_usd: float, seed: int = 0
) -> list[Observation]:
    """Profile the agent until the budget is spent; its rows."""
    workflow = Workflow(
        name="agent-25", template=template, build=build, score=lambda request, state: state["answer"].startswith("right"),
        requests=[Request(f"q{i:04d}", {"question": f"task {i}"}) for i in range(n_requests)],
    )  # fmt: skip
    backends = {"simulated": AgentBackend(truth)}
    with ObservationStore.open_or_create(path, store_identity(workflow, truth.catalog, backends)) as store:
        profile(workflow, truth.catalog, backends, store, ProfileSettings(budget_usd=budget_usd, seed=seed))
        return list(store.observations())
