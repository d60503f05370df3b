"""Write a method, run its visible tests, and write it again while they fail: four real models on the methods of ClassEval.

The code itself does not come with the package. A model returns the name of its recorded answer, and the tests look up that
answer's results. The visible half of the tests is the application's own check; all tests together decide whether an answer is
right.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from vinelm.catalog import Catalog
from vinelm.io.fields import as_flag
from vinelm.io.tables import read_table
from vinelm.requests.protocols import Vine
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.recorded.recorded_models import recorded_catalog

TABLE = Path(__file__).parent / "data" / "classeval.csv.gz"
RETRIES = 2
TODAY = "gpt-4-turbo"
"""The strongest of the models, which the unprofiled application uses for every call."""
PROMPT_TOKENS = 900
"""The assumed number of tokens of every prompt (a class's skeleton and earlier methods); prompts were not recorded."""
PRICES = {
    "gpt-4-turbo": ("GPT-4-Turbo", 10.0, 30.0),
    "gpt-3.5-turbo": ("GPT-3.5-Turbo", 0.5, 1.5),
    "gemini-pro": ("Gemini-Pro", 0.5, 1.5),
    "deepseek-coder-6.7b": ("deepseek-coder-6.7b-instruct", 0.2, 0.2),
}
"""By name of the model, its name in ClassEval, and its list price in mid-2024: dollars per million tokens in and out."""


class CodeState(TypedDict, total=False):
    """The state of the graph: the method's id, the last answer, and whether the visible tests passed."""

    method: str
    code: str
    passed: bool


class Tested(NamedTuple):
    """Whether a recorded answer passes the visible tests, and whether it passes all tests."""

    visible: bool
    all: bool


@cache
def outcomes() -> dict[tuple[str, str], Tested]:
    """Return, by (method, model), whether each recorded answer passes the visible tests and all tests."""
    return {
        (row["method"], row["model"]): Tested(
            as_flag(row["visible"], "visible", f"{TABLE}:{line}"), as_flag(row["all"], "all", f"{TABLE}:{line}")
        )
        for line, row in read_table(TABLE, ("method", "model", "visible", "all", "chars"))
    }


def tested(method: str, code: str) -> Tested:
    """Return whether a recorded implementation of ``method`` passes the visible tests, and whether it passes all tests.

    ``code`` is the name of the model that wrote it. An unknown implementation passes no test.
    """
    return outcomes().get((method, code), Tested(visible=False, all=False))


def catalog() -> Catalog:
    """Return the four models whose answers are recorded, at the list prices of mid-2024."""
    return recorded_catalog(
        TABLE,
        PRICES,
        "list price, mid-2024",
        date(2024, 7, 1),
        id_column="method",
        answer_column="model",
        chars_column="chars",
        prompt_tokens=PROMPT_TOKENS,
    )


def write(state: CodeState, model: Any) -> CodeState:
    """Let the model write the method, with one call; return the changed key of the state."""
    return {"code": model.invoke(f"Write the method {state['method']}.").text}


def run_tests(state: CodeState) -> CodeState:
    """Look up whether the last answer passes the visible tests; return the changed key of the state."""
    return {"passed": tested(state["method"], state["code"]).visible}


def rewrite(state: CodeState, model: Any) -> CodeState:
    """Let the model write the method again after its tests failed, with one call; return the changed key of the state."""
    return {"code": model.invoke(f"The tests of {state['method']} fail. Write it again.").text}


def passed(state: CodeState) -> bool:
    """Return whether the visible tests passed: the application's own check."""
    return state["passed"]


def build(vine: Vine) -> Any:
    """Return the workflow's uncompiled ``StateGraph``; its input is ``method``."""
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(CodeState)
    graph.add_node("write", vine.stage("write", write, default=TODAY))
    graph.add_node("test", run_tests)
    graph.add_node("retry", vine.stage("retry", rewrite, default=TODAY))
    graph.add_edge(START, "write")
    graph.add_edge("write", "test")
    graph.add_conditional_edges("test", vine.route(passed, again="retry", end=END, times=RETRIES))
    graph.add_edge("retry", "test")
    return graph


def code() -> Workflow:
    """Return the workflow with the 376 methods of ClassEval as requests."""
    return Workflow(
        name="code",
        template=Template((Stage("write"), Loop((Stage("retry"),), times=RETRIES)), stop="workflow"),
        build=build,
        requests=[Request(method, {"method": method}) for method in dict.fromkeys(method for method, _ in outcomes())],
        score=lambda request, state: tested(request.id, state["code"]).all,
        models=catalog(),
    )
