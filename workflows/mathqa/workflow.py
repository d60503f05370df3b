"""The workflow MathQA: answer, check, reflect and answer again, up to six times (VineLM paper §5.1)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.mathqa import prompts
from vinelm.workflows.mathqa.dataset import LABELS, load_problems
from vinelm.workflows.mathqa.equality import ANSWER, is_right, math_signal, require_math_verify, same_answer
from vinelm.workflows.mathqa.graph import TURNS, build
from vinelm.workflows.mathqa.simulated_writer import SolutionWriter

DATA = Path(__file__).parent / "data" / "problems.jsonl"
KEYS = ("question", "answer", "topic", "calculation", "mistakes", "steps")
"""The keys of a bundled row that its request gets. The other keys, such as the template of the problem, are for tests.
"""
PRESET = "paper-math"
"""The preset of the default simulated models: the paper's four. With eight, six turns would have 299,592 paths."""


def mathqa(dataset: str | Path | None = None) -> Workflow:
    """Return the workflow MathQA, which answers a math problem, checks its calculation, and answers again if the check fails.

    Args:
        dataset: a file of problems (see :func:`load_problems`); None means the bundled problems.

    Raises:
        ConfigError: math-verify is not installed.
        DatasetError: the dataset cannot be used.
    """
    require_math_verify()
    return Workflow(
        name="mathqa",
        template=Template((Loop((Stage("solve"),), times=TURNS),), stop="workflow"),
        build=build,
        requests=bundled_requests() if dataset is None else load_problems(dataset),
        score=is_right,
        labels=LABELS,
        writer=SolutionWriter(),
        simulated_preset=PRESET,
        resources={"prompts": prompts.digest()},
        signal=math_signal,
        agree=same_answer,
        answer=ANSWER,
    )


@cache
def bundled_requests() -> tuple[Request, ...]:
    """Return the bundled problems as requests. The id of a request names the topic of its problem.

    The problems are made from 22 templates (``kind``) in turn, so the first n problems are a fair sample.
    """
    lines = DATA.read_text(encoding="utf-8").splitlines()
    problems = [json.loads(line) for line in lines]
    return tuple(
        Request(f"{problem['topic'].replace(' ', '-')}-{index:03d}", {key: problem[key] for key in KEYS})
        for index, problem in enumerate(problems, start=1)
    )
