"""The workflow for questions about a graph: classify, then a code action, or a plan and a loop of actions and reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from vinelm.errors import ConfigError
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.workflows.graphqa import prompts
from vinelm.workflows.graphqa.act import start_sandbox
from vinelm.workflows.graphqa.dataset import LABELS, is_right, load_questions, same_names
from vinelm.workflows.graphqa.graph import make_build, signal
from vinelm.workflows.graphqa.questions import drawn
from vinelm.workflows.graphqa.simulated_writer import ProgramWriter
from vinelm.workflows.graphqa.source import GraphSource

PRESET = "paper-math"
"""The preset of the default simulated models, of which there are four. With eight, the trie would have 21,640 nodes instead of
1,444."""
DEMOS = ("league", "library", "music", "university", "webshop")
"""The demo databases that the bundled questions are about."""
TURNS = 3
"""The maximum number of snippets that the multi-hop branch may write for one question."""
REPAIRS = 2
"""The maximum number of snippets that the direct branch may write for one question."""


def graphqa(source: GraphSource | Mapping[str, GraphSource], questions: str | Path) -> Workflow:
    """Return the workflow for questions about your own graph.

    Args:
        source: The graph, or several graphs by the names that questions have in ``graph``.
        questions: A file of JSON lines; see :func:`~vinelm.workflows.graphqa.load_questions`.

    Raises:
        MissingExtra: pydantic-monty is not installed.
        SandboxFailure: The sandbox cannot be started.
        ConfigError: The source is not a graph.
        DatasetError: The questions cannot be used.
    """
    start_sandbox()
    given = {"": source} if isinstance(source, GraphSource) else source
    sources = dict(given) if isinstance(given, Mapping) else {}
    if not sources or not all(isinstance(one, GraphSource) for one in sources.values()):
        raise ConfigError("source is no graph: give GraphSource.from_sqlite(PATH) or another GraphSource, or several by name")
    return _workflow(sources, load_questions(questions, sources))


def bundled(dataset: str | Path | None = None) -> Workflow:
    """Return the workflow for questions about the demo databases.

    Args:
        dataset: A file of questions, each with the name of its database as ``graph``; None means the bundled questions.
    """
    start_sandbox()
    sources = demo_graphs()
    requests = drawn(sources) if dataset is None else load_questions(dataset, sources)
    return _workflow(sources, requests)


def template() -> Template:
    """Return the template: a classifier, then one of two branches, each a loop that ends with an answer.

    In the longer branch, paths whose last two choices of models agree are merged (``memory=2``).
    """
    direct = Loop((Stage("act_direct"),), times=REPAIRS)
    turns = Loop((Stage("act", answerable=False), Stage("reason")), times=TURNS, memory=2)
    arms = Branch({"direct": (direct,), "multi_hop": (Stage("plan", answerable=False), turns)})
    return Template((Stage("classify", answerable=False), arms), stop="workflow")


@cache
def demo_graphs() -> Mapping[str, GraphSource]:
    """Return the graphs of the demo databases, by name."""
    from vinelm.workflows.nl2sql.bundled import bundled_dataset

    folder = bundled_dataset().databases
    return {name: GraphSource.from_sqlite(folder / f"{name}.sqlite") for name in DEMOS}


def _workflow(sources: Mapping[str, GraphSource], requests: tuple[Request, ...]) -> Workflow:
    return Workflow(
        name="graphqa",
        template=template(),
        build=make_build(sources),
        requests=requests,
        score=is_right,
        labels=tuple(key for key in LABELS if any(key in request.data for request in requests)),
        writer=ProgramWriter(sources) if all("program" in request.data for request in requests) else None,
        simulated_preset=PRESET,
        signal=signal,
        agree=same_names,
        answer=("answer",),
        resources={
            **{f"graph:{name}": source.digest() for name, source in sources.items()},
            "prompts": prompts.digest(),
        },
    )
