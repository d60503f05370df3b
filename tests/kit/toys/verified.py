"""A workflow that answers, and may then ask a judge: every answer and every verdict is known in advance."""

import hashlib
from typing import TypedDict

from kit.toys.profiling import ToyBackend

from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template


class State(TypedDict, total=False):
    question: str
    answer: str
    verdict: str
    checked: int


def share(*words) -> float:
    return int.from_bytes(hashlib.sha256("/".join(map(str, words)).encode()).digest()[:8], "big") / 2**64


def answer_of(request_id: str, model: str) -> str:
    """m1 is right more often than m0; a request is as hard for both."""
    hard = share("hard", request_id)
    skill = {"m0": 0.55, "m1": 0.8}[model]
    return "right" if 0.5 * hard + 0.5 * share(request_id, model) < skill else "wrong"


def verdict_of(request_id: str, model: str, answer: str) -> str:
    return "yes" if share("verdict", request_id, model, answer) < (0.8 if answer == "right" else 0.35) else "no"


class VerifiedBackend(ToyBackend):
    """Answers as :func:`answer_of` says, and judges as :func:`verdict_of` does."""

    def text(self, call, cell):
        request, prefix = cell
        if call.stage != "verify":
            return answer_of(request, prefix[-1])
        held = [model for stage, model in zip(("solve", "verify") * 9, prefix, strict=False) if stage == "solve"][-1]
        return verdict_of(request, prefix[-1], answer_of(request, held))


def solve(state: State, model) -> State:
    return {"answer": model.invoke(state["question"]).text}


def verify(state: State, model) -> State:
    return {"verdict": model.invoke(f"is {state['answer']} right?").text}


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
    graph.add_node("verify", vine.stage("verify", verify, optional=True))
    graph.add_node("check", check)
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "solve")
    graph.add_edge("solve", "verify")
    graph.add_edge("verify", "check")
    graph.add_conditional_edges("check", vine.route(never, again="solve", end="finish"), ["solve", "finish"])
    graph.add_edge("finish", END)
    return graph


def verified(n_requests=4, times=2, **changes) -> Workflow:
    steps = (Loop((Stage("solve", ("m0", "m1")), Stage("verify", ("m0", "m1"), optional=True)), times),)
    fields = {
        "name": "verified",
        "template": Template(steps),
        "build": build,
        "requests": [Request(f"q{i}", {"question": f"number {i}", "label": i}) for i in range(n_requests)],
        "score": score,
        "labels": ("label",),
    }
    return Workflow(**(fields | changes))
