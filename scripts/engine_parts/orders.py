"""The same calls in the orders of a plain client and of ``vinelm.batch``: a draft and a check of each question on a table."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict
from urllib.request import Request, urlopen

import numpy as np
from engine_parts.servers import Engine, Setting
from langgraph.graph import END, START, StateGraph

import vinelm
from vinelm.catalog import Catalog
from vinelm.trie import Trie

WORKERS = 8
"""Requests under way for each slot, as the documentation says."""
CHARS = 1500
DRAFT = "You answer questions about financial reports. Answer with a number or a short span copied from the text, nothing else."
CHECK = "You check answers about financial reports. Say the answer again if it is right, or say the right one, nothing else."
ENTRY = """[[model]]
name = "own"
provider = "openai"
model = "{model}"
api_base = "{url}/v1"
max_tokens = 24
timeout_s = 600
price = {{ input = 0.1, cached = 0.01, output = 0.2, source = "own server", as_of = 2026-11-20 }}
options = {{ temperature = 0, extra_body = {body} }}

[backend.openai]
limits = {{ "{url}/v1" = {{ concurrency = {slots}, names_slots = {names} }} }}
"""
Message = tuple[str, str]


class State(TypedDict, total=False):
    """Of the application."""

    table: str
    question: str
    draft: str
    answer: str


Row = dict[str, str]


@dataclass(frozen=True)
class Load:
    """The questions, in the order in which they come.

    Args:
        name: Of :data:`LAYOUTS`.
        rows: One for each question.
        salt: What all prompts begin with.
    """

    name: str
    rows: Sequence[Row]
    salt: str = ""

    def draft(self, row: Any) -> list[Message]:
        """The prompt of the first call."""
        return self._salted(LAYOUTS[self.name](DRAFT, row["table"], row["question"]))

    def check(self, row: Any, draft: str) -> list[Message]:
        """The prompt of the second."""
        return self._salted(LAYOUTS[self.name](CHECK, row["table"], f"{row['question']}\nProposed: {draft[:80]}"))

    def _salted(self, messages: list[Message]) -> list[Message]:
        (role, text), *others = messages
        return [(role, self.salt + text), *others]


LAYOUTS: dict[str, Callable[[str, str, str], list[Message]]] = {
    "role first": lambda role, table, rest: [("system", role), ("user", table), ("user", rest)],
    "table first": lambda role, table, rest: [("user", table), ("user", f"{role}\n{rest}")],
}


def load(name: str, data: Path, tables: int, questions: int, seed: int = 1) -> Load:
    """Read so many questions on each of so many tables of TAT-QA, shuffled."""
    rows = []
    with gzip.open(data / "batch" / "tatqa.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line, _ in zip(lines, range(tables), strict=False):
            told = json.loads(line)
            parts = [one if isinstance(one, str) else one.get("text", "") for one in told["paragraphs"]]
            text = "\n".join([*(" | ".join(map(str, row)) for row in told["table"]), *parts])[:CHARS]
            rows += [{"table": text, "question": one["question"]} for one in told["questions"][:questions]]
    random.Random(seed).shuffle(rows)
    return Load(name, [{"id": f"q{number}", **row} for number, row in enumerate(rows)])


# -- a plain client ------------------------------------------------------------------------------------------------------


def _call(engine: Engine, messages: Sequence[Message]) -> str:
    said = [{"role": role, "content": text} for role, text in messages]
    body = {"model": engine.model, "max_tokens": 24, "temperature": 0, "messages": said, **engine.options}
    head = {"content-type": "application/json"}
    with urlopen(Request(f"{engine.url}/v1/chat/completions", json.dumps(body).encode(), head), timeout=900) as answer:
        text: str = json.load(answer)["choices"][0]["message"]["content"]
        return text.strip()


def _each(do: Callable[[Any], Any], items: Sequence[Any], slots: int) -> list[Any]:
    with ThreadPoolExecutor(slots) as pool:
        return list(pool.map(do, items))


def _whole(engine: Engine, work: Load, rows: Sequence[Row], slots: int) -> None:
    """One request after the other, as many at a time as there are slots."""
    _each(lambda row: _call(engine, work.check(row, _call(engine, work.draft(row)))), rows, slots)


def _by_table(work: Load) -> list[Row]:
    return sorted(work.rows, key=lambda row: row["table"])


def arrival(engine: Engine, work: Load, slots: int) -> None:
    """As the requests come."""
    _whole(engine, work, work.rows, slots)


def by_hand(engine: Engine, work: Load, slots: int) -> None:
    """The file sorted by table."""
    _whole(engine, work, _by_table(work), slots)


def by_stage(engine: Engine, work: Load, slots: int) -> None:
    """All drafts, then all checks, both sorted by table."""
    rows = _by_table(work)
    drafts = _each(lambda row: _call(engine, work.draft(row)), rows, slots)
    _each(lambda both: _call(engine, work.check(*both)), list(zip(rows, drafts, strict=True)), slots)


def by_table(engine: Engine, work: Load, slots: int) -> None:
    """Depth-first: each slot takes a table, asks its drafts, and then its checks."""
    tables: dict[str, list[Row]] = {}
    for row in work.rows:
        tables.setdefault(row["table"], []).append(row)

    def one(rows: list[Row]) -> None:
        drafts = [_call(engine, work.draft(row)) for row in rows]
        for row, draft in zip(rows, drafts, strict=True):
            _call(engine, work.check(row, draft))

    _each(one, list(tables.values()), slots)


# -- ours ----------------------------------------------------------------------------------------------------------------


def ours(engine: Engine, work: Load, slots: int) -> None:
    """``vinelm.batch``, as it is documented."""
    body = ", ".join(f"{key} = {_toml(one)}" for key, one in engine.options.items())
    text = ENTRY.format(model=engine.model, url=engine.url, slots=slots, body=f"{{ {body} }}", names=_toml(engine.names_slots))
    with tempfile.TemporaryDirectory() as folder:
        entries = Path(folder) / "models.toml"
        entries.write_text(text, encoding="utf-8")
        catalog = Catalog.of(entries)
        found = vinelm.batch(
            _workflow(work),
            _trie(catalog),
            vinelm.Objective(minimize="cost"),
            models=catalog,
            output=Path(folder) / "answers.jsonl",
            budget_usd=100.0,
            workers=WORKERS * slots,
        )
        assert found.by_status["ok"] == len(work.rows), found.by_status


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(one)}' for key, one in value.items())} }}"
    return json.dumps(value)


def _workflow(work: Load) -> vinelm.Workflow:
    def draft(state: State, model: Any) -> dict[str, str]:
        return {"draft": model.invoke(work.draft(state)).text.strip()}

    def check(state: State, model: Any) -> dict[str, str]:
        return {"answer": model.invoke(work.check(state, state["draft"])).text.strip()}

    def build(vine: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("draft", vine.stage("draft", draft, state=State))
        graph.add_node("check", vine.stage("check", check, state=State))
        graph.add_edge(START, "draft")
        graph.add_edge("draft", "check")
        graph.add_edge("check", END)
        return graph

    rows = [vinelm.Request(id=row["id"], data={"table": row["table"], "question": row["question"]}) for row in work.rows]
    return vinelm.Workflow(name="tables", build=build, requests=rows, score=lambda request, state: True, answer=("answer",))


def _trie(catalog: Catalog) -> vinelm.AnnotatedTrie:
    template = vinelm.Template((vinelm.Stage("draft", answerable=False), vinelm.Stage("check"))).bind(tuple(catalog))
    nodes = Trie.from_template(template)
    ends, runs, zeros = (nodes.depth > 1) * 1.0, (nodes.depth > 0) * 1e-4, np.zeros(len(nodes))
    return vinelm.AnnotatedTrie(nodes, template, catalog, ends, ends, ends, runs, zeros, runs, zeros)


ORDERS: dict[str, Callable[[Engine, Load, int], None]] = {
    "arrival": arrival,
    "sorted file": by_hand,
    "all drafts, then all checks": by_stage,
    "depth-first": by_table,
    "vinelm batch": ours,
}
OURS = "vinelm batch"


@contextmanager
def counted(engine: Engine) -> Iterator[dict[str, int]]:
    """What the engine computes in the block, and has in its caches; filled in at its end."""
    found: dict[str, int] = {}
    before = engine.counts()
    yield found
    computed, cached = (now - then for now, then in zip(engine.counts(), before, strict=True))
    found |= {"computed": computed, "cached": cached}


def measured(
    setting: Setting, orders: Sequence[str], works: Sequence[Load], python: str, folder: Path
) -> Iterator[tuple[Load, dict[str, dict[str, int]]]]:
    """Send each load in each order, with nothing in the engine's caches; yields the tokens of its prompts by order.

    llama.cpp is started again each time. vLLM, whose start takes minutes, is sent prompts that begin as no earlier ones do.
    """
    if setting.engine == "vLLM":
        with Engine(setting, python, folder) as engine:
            for work in works:
                found = {}
                for order in orders:
                    with counted(engine) as found[order]:
                        ORDERS[order](engine, replace(work, salt=f"Run {order} of {work.name}. "), setting.slots)
                yield work, found
        return
    for work in works:
        found = {}
        for order in orders:
            with Engine(setting, python, folder) as engine, counted(engine) as found[order]:
                ORDERS[order](engine, work, setting.slots)
        yield work, found
