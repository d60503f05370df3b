"""What the adapters of all peers share: the project in this folder, its questions, the meter. Standard library only.

An adapter runs in its peer's own environment, in a folder with ``app.py`` (the application as its authors left it),
``project.json`` (its name, its stages, the models with prices, the dollars for choosing), ``choosing.jsonl`` and
``held_out.jsonl`` (questions with their answers; the second is there only when the peer serves). It defines

- ``edited(source, chosen)``: the source of the application with the peer in it; its changed lines are counted;
- ``choose(project)``: what the peer learns with the dollars, as JSON; printing is allowed;

and ends with ``run(choose, edited)``.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

TOGETHER = 4
"""Requests at a time."""
STEP = 20
"""Questions at a time where alternatives are measured in turn."""
LLM = 'llm = ChatOpenAI(model="{today}")\n'
"""The line of every application that makes its model."""


@dataclass(frozen=True)
class Project:
    """The application of this folder."""

    app: str
    stages: list[str]
    today: str
    prices: dict[str, list[float]]
    dollars: float
    source: str

    @property
    def models(self) -> list[str]:
        """The models, cheap before dear."""
        return list(self.prices)

    @property
    def llm(self) -> str:
        """The line of the source that makes the model."""
        return LLM.format(today=self.today)

    def questions(self, name: str) -> list[tuple[str, str]]:
        """Questions with their answers: ``choosing`` or ``held_out``."""
        lines = Path(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        return [(one["question"], one["answer"]) for one in map(json.loads, lines)]


def opened() -> Project:
    """The project of this folder."""
    return Project(**json.loads(Path("project.json").read_text()), source=Path("app.py").read_text(encoding="utf-8"))


def metered() -> dict[str, Any]:
    """What the server has metered under the name of this process: ``usd`` by question, ``total_usd``, ``calls``."""
    with urlopen(os.environ["OPENAI_BASE_URL"].removesuffix("/v1") + "/used") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def replaced(source: str, *pairs: tuple[str, str]) -> str:
    """The source with each text replaced; a text that is not there is an error: the edit would not be what is counted."""
    for old, new in pairs:
        if old not in source:
            raise ValueError(f"the application does not have {old!r}")
        source = source.replace(old, new)
    return source


def with_llm(project: Project, made: str, imported: str = "") -> str:
    """The source with another line that makes the model, and with what it imports."""
    imports = "from langchain_openai import ChatOpenAI\n"
    return replaced(project.source, (imports, imported + imports), (project.llm, made))


def loaded(source: str) -> Any:
    """The source as a module."""
    number = sum(name.startswith("app_") for name in sys.modules)
    path = Path(f"app_{number}.py")
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@cache
def is_agent() -> bool:
    """Whether the application of this folder takes messages."""
    return opened().app == "agent"


def answer(graph: Any, question: str, *, has_coroutines: bool = False) -> str:
    """What the application answers; empty if it fails. Nodes that are coroutines run in a loop of their own."""
    given: Any = {"messages": [("user", question)]} if is_agent() else {"question": question}
    try:
        state = asyncio.run(graph.ainvoke(given)) if has_coroutines else graph.invoke(given)
    except Exception as error:  # a request that fails is a wrong answer, as it is for a user
        print(f"failed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return ""
    return str(state["messages"][-1].text if is_agent() else state.get("answer", "")).strip()


def scores(graph: Any, asked: Sequence[tuple[str, str]], *, has_coroutines: bool = False) -> list[bool]:
    """Whether each question is answered rightly."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda one: answer(graph, one[0], has_coroutines=has_coroutines) == one[1], asked))


def measured(project: Project, sources: Mapping[str, str], share: float = 1.0) -> dict[str, list[bool]]:
    """Each source on the same questions, 20 at a time in turn, as many as this share of the dollars pays for."""
    asked, begun = project.questions("choosing"), metered()["total_usd"]
    graphs = {name: loaded(source).graph for name, source in sources.items()}
    found: dict[str, list[bool]] = {name: [] for name in sources}
    for start in range(0, len(asked), STEP):
        for name, graph in graphs.items():
            found[name] += scores(graph, asked[start : start + STEP])
        spent = metered()["total_usd"]
        if spent + (spent - begun) / (start + STEP) * STEP > share * project.dollars:
            break
    return found


def measured_singles(project: Project, share: float = 1.0) -> dict[str, list[bool]]:
    """Each model alone in all stages, on the same questions."""
    return measured(project, {model: with_llm(project, LLM.format(today=model)) for model in project.models}, share)


def frontier(project: Project, found: Mapping[str, list[bool]]) -> list[str]:
    """The models that are more accurate than every cheaper one, cheap before dear."""
    kept: list[str] = []
    for model in project.models:
        if not kept or sum(found[model]) > sum(found[kept[-1]]):
            kept.append(model)
    return kept


def run(choose: Callable[[Project], Any], edited: Callable[[Project, Any], str], *, has_coroutines: bool = False) -> None:
    """``choose`` writes chosen.json and edited.py, ``serve`` whether each held-out answer is right, served.json."""
    project = opened()
    if sys.argv[1] == "choose":
        chosen = choose(project)
        Path("chosen.json").write_text(json.dumps(chosen))
        Path("edited.py").write_text(edited(project, chosen), encoding="utf-8")
        return
    graph = loaded(Path("edited.py").read_text(encoding="utf-8")).graph
    right = scores(graph, project.questions("held_out"), has_coroutines=has_coroutines)
    Path("served.json").write_text(json.dumps(right))
