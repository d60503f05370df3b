"""The application of the soak test, with VineLM and bare: an answer, repeated up to two times until it is right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import numpy as np
from langgraph.graph import END, START, StateGraph
from openai import OpenAI

from soak_parts import stepped_clock
from vinelm import Loop, Stage, Template, Workflow
from vinelm.catalog import Catalog
from vinelm.requests.workflow import Request
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

REPAIRS = 2
DEFAULT = "small"
"""What the bare application calls, and requests without a plan."""
TOKENS = (20, 2)
"""Tokens in and out of every call: see `local_openai.py`."""
PRICES = {"small": (50.0, 100.0), "large": (200.0, 400.0)}
"""Dollars of a million tokens, in and out."""
MAX_TOKENS = 16

stepped_clock.install()


class State(TypedDict, total=False):
    """What the graph passes on."""

    question: str
    answer: str
    turn: int


def prompt_of(question: str, turn: int) -> str:
    return f"{question} turn={turn}"


def cost_usd(model: str) -> float:
    """What one call costs by the server's tokens."""
    return sum(count * price for count, price in zip(TOKENS, PRICES[model], strict=True)) / 1e6


def answer(state: State, model: Any) -> State:
    return {"answer": model.invoke(prompt_of(state["question"], 0)).text, "turn": 0}


def repair(state: State, model: Any) -> State:
    turn = state["turn"] + 1
    return {"answer": model.invoke(prompt_of(state["question"], turn)).text, "turn": turn}


def is_right(state: State) -> bool:
    return state["answer"] == "right"


def build(vine: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("answer", vine.stage("answer", answer, default=DEFAULT))
    graph.add_node("repair", vine.stage("repair", repair, default=DEFAULT))
    graph.add_edge(START, "answer")
    for node in ("answer", "repair"):
        graph.add_conditional_edges(node, vine.route(is_right, again="repair", end=END, times=REPAIRS))
    return graph


def bare(client: OpenAI) -> Callable[[str], str]:
    """The same application without VineLM: the default model, asked by the provider's own client with its own retries."""

    def ask(question: str) -> str:
        text = ""
        for turn in range(REPAIRS + 1):
            messages: Any = [{"role": "user", "content": prompt_of(question, turn)}]
            told = client.chat.completions.create(model=DEFAULT, messages=messages, max_tokens=MAX_TOKENS)
            text = told.choices[0].message.content or ""
            if text == "right":
                break
        return text

    return ask


ENTRY = """[[model]]
name = "{name}"
provider = "openai"
model = "{model}"
engine = "{engine}"
api_base = "{url}"
max_tokens = {max_tokens}
timeout_s = 20
price = {{ input = {price[0]}, output = {price[1]}, source = "made up", as_of = 2026-01-01 }}
{group}
"""


def catalog_toml(urls: Mapping[str, str], per_minute: int) -> str:
    """`small` on the first engine, `large` on the others as replicas, each engine with a limit of so many calls a minute."""
    text, is_first = "", True
    for engine, url in urls.items():
        model = "small" if is_first else "large"
        name, group = (model, "") if is_first else (f"{model}-{engine}", f'group = "{model}"')
        told = {"name": name, "model": model, "engine": engine, "url": url, "price": PRICES[model], "group": group}
        text, is_first = text + ENTRY.format(**told, max_tokens=MAX_TOKENS), False
    limits = ", ".join(f"{engine} = {{ requests_per_min = {per_minute} }}" for engine in urls)
    return f"{text}\n[backend.openai]\nlimits = {{ {limits} }}\n"


def annotated(made: Catalog, version: int) -> AnnotatedTrie:
    """Version ``version`` of the trie; each plans the other model first than the one before."""
    template = Template((Stage("answer"), Loop((Stage("repair"),), times=REPAIRS))).bind(tuple(PRICES))
    trie = Trie.from_template(template)
    inside = trie.depth > 0
    names = np.array([trie.models[index] if index >= 0 else "" for index in trie.model])
    better = tuple(PRICES)[version % 2]
    right = np.where(names == better, 0.5, 0.3) * inside
    share = np.where(trie.is_leaf, 1.0, right) * inside
    cost = np.array([cost_usd(name) if name else 0.0 for name in names])
    seconds = 0.1 * inside
    return AnnotatedTrie(
        trie, template, made, success=right, stop=share, stop_success=right, cost_usd=cost, cost_var=0.01 * cost**2,
        latency_s=seconds, latency_var=0.01 * seconds**2, count=np.where(inside, 500 + version, 0), meta={"workflow": "soak"},
    )  # fmt: skip


def version_of(trie: AnnotatedTrie) -> str:
    """As `deploy/service.py` names it."""
    columns = (trie.success, trie.stop, trie.cost_usd, trie.latency_s)
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:12]


workflow = Workflow(
    name="soak",
    template=Template((Stage("answer"), Loop((Stage("repair"),), times=REPAIRS))),
    build=build,
    requests=[Request("q0", {"question": "?"})],
    score=lambda request, state: is_right(state),
    answer=("answer",),
)
