"""Describes the table of a demo on recorded answers, and the demo's findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from vinelm.controller import Decision
from vinelm.evaluation.plans.plans import Interval, Role
from vinelm.profiler.scheduling.results import ProfileResult
from vinelm.requests.workflow import Workflow
from vinelm.traces.served.served_requests import ServedRequest
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray
from vinelm.trie.verdict import Verdict
from vinelm.workflows.recorded import classeval, exam_answers

Z95 = 1.96


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The facts and texts that are specific to one table of recorded answers.

    Attributes:
        workflow: Returns the workflow; the answers of its ``models`` are recorded.
        today: The current setup: the model that the application is assumed to run on every call.
        share: The maximum cost of VineLM's plan, as a fraction of the current setup's cost.
        share_words: ``share`` in words.
        coverage: The profile's coverage, as a fraction of the cost of profiling everything.
        group: Returns the group of a request id: requests of one group depend on each other, so they stay in the same half.
        noun: What a request is in this table, in the plural.
        replayed: A sentence on what is replayed.
        real: A sentence on what is real and what is computed.
        chosen: A sentence on why this table was chosen and where to look next.
        asks_equal: Whether to also test the cheapest plan with the current setup's predicted accuracy.
    """

    workflow: Callable[[], Workflow]
    today: str
    share: float
    share_words: str
    coverage: float
    group: Callable[[str], str]
    noun: str
    replayed: str
    real: str
    chosen: str
    asks_equal: bool = False


SUBJECTS: Mapping[str, Subject] = {
    "code": Subject(
        workflow=classeval.code,
        today=classeval.TODAY,
        share=0.1,
        share_words="a tenth",
        coverage=0.06,
        group=lambda method: method.partition(".")[0],
        noun="methods",
        replayed="Replayed: 376 methods of ClassEval, as four real models wrote them. An app writes one, runs its visible "
        "tests, and retries up to twice while they fail.",
        real="Real: what was written, test results, lengths. Computed: dollars, from list prices of mid-2024, those lengths "
        f"and {classeval.PROMPT_TOKENS} tokens a prompt (assumed).",
        chosen="Chosen because it pays: where it does not, `vinelm demo exams`.",
    ),
    "exams": Subject(
        workflow=exam_answers.exams,
        today=exam_answers.TODAY,
        share=0.5,
        share_words="half",
        coverage=0.1,
        group=lambda question: question,
        noun="questions",
        replayed="Replayed: 600 exam questions, as nine real models answered them. An app asks one, and may ask another; which "
        "letter is right it does not see.",
        real="Real: answers, dollars, seconds (April 2024).",
        chosen="Where it pays: `vinelm demo`.",
        asks_equal=True,
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class DemoPolicy:
    """One policy's results on every request.

    Attributes:
        name: The policy's name in tables.
        role: The kind of policy, such as ``"in_use"`` for the current setup; it decides the colour in charts.
        served: The results, in the same order of requests for all policies.
    """

    name: str
    role: Role
    served: tuple[ServedRequest, ...]

    @cached_property
    def right(self) -> FloatArray:
        """The score of each answer (1 if right), shape (requests,)."""
        return np.array([one.success for one in self.served], np.float64)

    @cached_property
    def cost_usd(self) -> FloatArray:
        """The cost of each request in dollars, shape (requests,)."""
        return np.array([one.cost_usd for one in self.served], np.float64)

    @property
    def accuracy(self) -> float:
        """The fraction of right answers."""
        return float(self.right.mean())

    @property
    def usd(self) -> float:
        """The mean cost per request in dollars."""
        return float(self.cost_usd.mean())

    @property
    def seconds(self) -> float:
        """The mean latency per request in seconds; 0 if no latency was recorded."""
        return float(np.mean([one.latency_s for one in self.served]))


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedResult:
    """The findings of a demo on recorded answers, and its files.

    Attributes:
        subject: The description of the table.
        profiled: The result of the profile.
        models: The results of each model alone: first the current setup's model, then the others from the most to the least
            expensive.
        fixed: The results of the best fixed plan within the same cost limit; None if no fixed plan meets it.
        vinelm: The results of VineLM's plan.
        found: The verdict on VineLM's plan. Its comparison also lists the single models and the best fixed plan.
        equal: The verdict on the cheapest plan with the current setup's predicted accuracy; None if not requested.
        annotated: The trie estimated from all results, with the verdict.
        decision: The plan that was chosen on all results.
        groups: The group of each request, in the order of the policies' results. Requests of one group depend on each other.
        store, trie, page: The observation store, the annotated trie and the report.
    """

    subject: Subject
    profiled: ProfileResult
    models: tuple[DemoPolicy, ...]
    fixed: DemoPolicy | None
    vinelm: DemoPolicy
    found: Verdict
    equal: Verdict | None
    annotated: AnnotatedTrie
    decision: Decision
    groups: tuple[str, ...]
    store: Path
    trie: Path
    page: Path

    @property
    def plan(self) -> str:
        """The plan that was chosen on all results, in words."""
        return self.decision.words

    @property
    def today(self) -> DemoPolicy:
        """The results of the current setup."""
        return self.models[0]

    @property
    def policies(self) -> tuple[DemoPolicy, ...]:
        """The policies in table order, VineLM last."""
        return (*self.models, *(() if self.fixed is None else (self.fixed,)), self.vinelm)


def mean_over_groups(values: FloatArray, groups: Sequence[str]) -> Interval:
    """Return the mean of ``values`` with its 95 % interval, where values of the same group depend on each other.

    ``groups`` has the group of each value. The interval uses the cluster-robust variance: deviations from the mean are added up
    within each group first.
    """
    names, of = np.unique(groups, return_inverse=True)
    mean = float(values.mean())
    sums = np.bincount(of, values - mean)
    reach = Z95 * math.sqrt(len(names) / (len(names) - 1) * float((sums**2).sum())) / len(values)
    return Interval(mean, mean - reach, mean + reach)
