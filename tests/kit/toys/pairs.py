"""One small application that has any of the eight features which plans can depend on; every reply is known in advance."""

from dataclasses import dataclass, replace
from typing import TypedDict

from kit.catalogs import make_catalog
from kit.toys.judged import ENTRY, JudgeBackend, erring
from kit.toys.profiling import ToyBackend
from kit.toys.verified import share
from vinelm.catalog import Catalog
from vinelm.judging import llm_judge
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Parallel, Stage, Template

FEATURES = ("kinds", "signals", "judge", "optional", "parallel", "merged", "canary", "cap")
"""The last two are of serving: a share of the requests, and dollars that no single request exceeds."""
RIGHT = {"m0": {"code": 0.95, "prose": 0.2}, "m1": {"code": 0.3, "prose": 0.95}}
"""How often each model is right about each kind."""
USD = {"m0": 0.001, "m1": 0.003}


class State(TypedDict, total=False):
    question: str
    kind: str
    law: str
    tax: str
    hint: str
    answer: str
    sure: str


def kind_of(request_id: str) -> str:
    return "code" if int(request_id[1:]) % 2 else "prose"


def answer_of(request_id: str, model: str, stage: str) -> str:
    is_right = share("right", request_id, model, stage) < RIGHT[model][kind_of(request_id)]
    return "right" if is_right else f"wrong {model}"


@dataclass
class PairsBackend(ToyBackend):
    """Answers as :func:`answer_of` says."""

    def answer(self, model, call, prompt_chars):
        text, usage = super().answer(model, call, prompt_chars)
        return text, replace(usage, cost_usd=USD[model.name], latency_s=1.0)

    def text(self, call, cell):
        return answer_of(cell[0], cell[1][-1], call.stage)


def said(key, stage):
    def run(state: State, model) -> State:
        return {key: model.invoke(f"{stage}: {state['question']}").text}

    return run


def check(state: State) -> State:
    """A tool that passes nine of ten right answers and two of ten wrong ones."""
    often = 0.9 if state["answer"] == "right" else 0.2
    return {"sure": "sure" if share(state["question"], state["answer"]) < often else "unsure"}


def passed(state: State) -> bool:
    return state["sure"] == "sure"


def score(request, state) -> bool:
    return state["answer"] == "right"


def build(features, vine):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    last = [START]
    if "optional" in features:
        graph.add_node("hint", vine.stage("hint", said("hint", "hint"), optional=True, default="m0"))
        graph.add_edge(START, "hint")
        last = ["hint"]
    if "parallel" in features:
        for name in ("law", "tax"):
            graph.add_node(name, vine.stage(name, said(name, name), default="m0"))
            graph.add_edge(last[0], name)
        last = ["law", "tax"]
    for name in ("solve", "again"):
        graph.add_node(name, vine.stage(name, said("answer", name), state=State, default="m0"))
        graph.add_edge(name, "check")
    graph.add_edge(last if len(last) > 1 else last[0], "solve")
    graph.add_node("check", check)
    end = "finish" if "signals" in features else END
    graph.add_conditional_edges("check", vine.route(passed, again="again", end=end), ["again", end])
    if "signals" in features:
        graph.add_node("finish", vine.finish)
        graph.add_edge("finish", END)
    return graph


@dataclass(frozen=True)
class Built:
    """The build function of an application with these features, equal in every process."""

    features: tuple[str, ...]

    def __call__(self, vine):
        return build(self.features, vine)


def template_of(features) -> Template:
    models, times = tuple(RIGHT), 2 if "merged" in features else 1  # a single turn has no histories to merge
    quiet = {name: Stage(name, few, answerable=False, default="m0") for name, few in (("law", ("m0",)), ("tax", models))}
    return Template(
        (
            *((Stage("hint", ("m0",), answerable=False, optional=True, default="m0"),) if "optional" in features else ()),
            *((Parallel((quiet["law"], quiet["tax"])),) if "parallel" in features else ()),
            Stage("solve", models, default="m0"),
            Loop((Stage("again", models, default="m0"),), times, **({"memory": 1} if "merged" in features else {})),
        )
    )


def application(features, n_requests=40) -> Workflow:
    rows = [Request(f"q{i}", {"question": f"q{i}", "kind": kind_of(f"q{i}"), "label": "right"}) for i in range(n_requests)]
    labelled = llm_judge(ENTRY, rubric="It is right.", question="question", label="label", truth=score)
    return Workflow(
        name="pairs",
        template=template_of(features),
        build=Built(tuple(features)),
        requests=rows,
        score=labelled if "judge" in features else score,
        labels=("label",),
        **({"kind": "kind"} if "kinds" in features else {}),
        **({"signal": signal, "answer": ("answer",)} if "signals" in features else {}),
    )


def signal(state) -> str:
    return state.get("sure", "none")


def catalog() -> Catalog:
    return Catalog((*make_catalog(2, provider="test", max_tokens=100).models, ENTRY))


def backends():
    return {"test": PairsBackend(), "judge": JudgeBackend(erring)}
