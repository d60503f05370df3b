"""A workflow that answers and may then ask a judge, in a loop: every answer and every verdict is known in advance."""

import hashlib
import json
from dataclasses import replace
from typing import TypedDict

from kit.catalogs import make_catalog
from kit.toys.profiling import ToyBackend
from vinelm.requests.workflow import Request, Workflow

PROMPT = "Question: {question} Answer: {answer} Is it right?"


class State(TypedDict, total=False):
    question: str
    answer: str
    verdict: str
    checked: int


def share(*words) -> float:
    """A number in [0, 1) that the words decide."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:8], "big") / 2**64


def answer_of(request_id: str, model: str) -> str:
    """m1 is right more often than m0; wrong answers differ."""
    is_right = 0.3 * share("hard", request_id) + 0.7 * share(request_id, model) < {"m0": 0.55, "m1": 0.8}[model]
    return "right" if is_right else f"wrong {model}"


def verdict_of(request_id: str, answer: str) -> str:
    """yes to 85 % of right answers and to 20 % of wrong ones."""
    return "yes" if share("verdict", request_id, answer) < (0.85 if answer == "right" else 0.2) else "no"


class VerifiedBackend(ToyBackend):
    """Answers as :func:`answer_of` says, and judges as :func:`verdict_of` does. A verdict is cheap."""

    def answer(self, model, call, prompt_chars):
        text, usage = super().answer(model, call, prompt_chars)
        usd = {"m0": 0.001, "m1": 0.004}[model.name] if call.stage == "solve" else 0.0002
        return text, replace(usage, cost_usd=usd, latency_s=1.0)

    def text(self, call, cell):
        request, prefix = cell
        if call.stage == "solve":
            return answer_of(request, prefix[-1])
        return json.dumps({"right": verdict_of(request, answer_of(request, prefix[-2])) == "yes"})


def solve(state: State, model) -> State:
    return {"answer": model.invoke(state["question"]).text}


def check(state: State) -> State:
    """A tool behind the judge: it runs whether the judge was asked or not."""
    return {"checked": state.get("checked", 0) + 1}


def never(state: State) -> bool:
    return False


def score(request, state) -> bool:
    return state["answer"] == "right"


def build(vine):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("solve", vine.stage("solve", solve))
    graph.add_node("verify", vine.verifier("verify", prompt=PROMPT, state=State))
    graph.add_node("check", check)
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "solve")
    graph.add_edge("solve", "verify")
    graph.add_edge("verify", "check")
    graph.add_conditional_edges("check", vine.route(never, again="solve", end="finish", times=1), ["solve", "finish"])
    graph.add_edge("finish", END)
    return graph


def verified(n_requests=4, **changes) -> Workflow:
    """The workflow; its template is read off its graph."""
    fields = {
        "name": "verified",
        "build": build,
        "requests": [Request(f"q{i}", {"question": f"number {i}", "label": i}) for i in range(n_requests)],
        "score": score,
        "labels": ("label",),
        "answer": ("answer",),
    }
    return Workflow(**(fields | changes))


def catalog():
    return make_catalog(2, provider="test", max_tokens=100)
