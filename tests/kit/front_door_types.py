"""What type checkers see of ``import vinelm``. ``make types`` reads it beside the package; nothing runs it.

A name that had lost its type would have every attribute: then its ``type: ignore`` is one too many, which strict mypy refuses.
"""

from pathlib import Path
from typing import assert_type

import vinelm
from vinelm import Objective
from vinelm.controller.planning.decision import Decision
from vinelm.controller.session.session import Session
from vinelm.evaluation.comparison.result import Evaluation
from vinelm.policies.fixed import DefaultPolicy
from vinelm.profiler.scheduling.results import ProfileResult
from vinelm.trie.annotated_trie import AnnotatedTrie

CHEAP = Objective(minimize="cost")


def what_the_verbs_return() -> None:
    assert_type(vinelm.profile("nl2sql", "models.toml", "x.db"), ProfileResult)
    assert_type(vinelm.estimate("x.db"), AnnotatedTrie)
    assert_type(vinelm.plan("x.vine", maximize="accuracy"), Decision)
    assert_type(vinelm.plan(vinelm.load_trie("x.vine"), CHEAP), Decision)
    assert_type(vinelm.report("x.db", "x.vine", "out"), Path)
    assert_type(vinelm.evaluate("x.db"), Evaluation)
    assert_type(vinelm.verify("x.db", "x.vine", CHEAP), vinelm.Verification)
    assert_type(vinelm.batch("nl2sql", "x.vine", CHEAP, output="x.jsonl"), vinelm.BatchResult)
    assert_type(vinelm.try_app("app.py:build"), vinelm.Trial)
    assert_type(vinelm.load_workflow("nl2sql"), vinelm.Workflow)
    assert_type(vinelm.VineLM("models.toml").session(CHEAP), Session | DefaultPolicy)


NAMES = (
    vinelm.AnnotatedTrie.nothing,  # type: ignore[attr-defined]
    vinelm.BatchResult.nothing,  # type: ignore[attr-defined]
    vinelm.Branch.nothing,  # type: ignore[attr-defined]
    vinelm.BudgetExhausted.nothing,  # type: ignore[attr-defined]
    vinelm.CallCache.nothing,  # type: ignore[attr-defined]
    vinelm.CallError.nothing,  # type: ignore[attr-defined]
    vinelm.CallRefused.nothing,  # type: ignore[attr-defined]
    vinelm.Catalog.nothing,  # type: ignore[attr-defined]
    vinelm.ConfigError.nothing,  # type: ignore[attr-defined]
    vinelm.DatasetError.nothing,  # type: ignore[attr-defined]
    vinelm.Decision.nothing,  # type: ignore[attr-defined]
    vinelm.Evaluation.nothing,  # type: ignore[attr-defined]
    vinelm.EvidenceError.nothing,  # type: ignore[attr-defined]
    vinelm.ExecutionConfig.nothing,  # type: ignore[attr-defined]
    vinelm.InfeasibleError.nothing,  # type: ignore[attr-defined]
    vinelm.Loop.nothing,  # type: ignore[attr-defined]
    vinelm.Model.nothing,  # type: ignore[attr-defined]
    vinelm.Objective.nothing,  # type: ignore[attr-defined]
    vinelm.ObservationStore.nothing,  # type: ignore[attr-defined]
    vinelm.Parallel.nothing,  # type: ignore[attr-defined]
    vinelm.Price.nothing,  # type: ignore[attr-defined]
    vinelm.ProfileResult.nothing,  # type: ignore[attr-defined]
    vinelm.Request.nothing,  # type: ignore[attr-defined]
    vinelm.Signals.nothing,  # type: ignore[attr-defined]
    vinelm.Speculation.nothing,  # type: ignore[attr-defined]
    vinelm.Stage.nothing,  # type: ignore[attr-defined]
    vinelm.StoreError.nothing,  # type: ignore[attr-defined]
    vinelm.Template.nothing,  # type: ignore[attr-defined]
    vinelm.TemplateError.nothing,  # type: ignore[attr-defined]
    vinelm.TextWriter.nothing,  # type: ignore[attr-defined]
    vinelm.Trial.nothing,  # type: ignore[attr-defined]
    vinelm.Verification.nothing,  # type: ignore[attr-defined]
    vinelm.VineChatModel.nothing,  # type: ignore[attr-defined]
    vinelm.VineLM.nothing,  # type: ignore[attr-defined]
    vinelm.VineLMError.nothing,  # type: ignore[attr-defined]
    vinelm.VineMiddleware.nothing,  # type: ignore[attr-defined]
    vinelm.VineRecorder.nothing,  # type: ignore[attr-defined]
    vinelm.Workflow.nothing,  # type: ignore[attr-defined]
    vinelm.WorkflowError.nothing,  # type: ignore[attr-defined]
    vinelm.as_today.nothing,  # type: ignore[attr-defined]
    vinelm.batch.nothing,  # type: ignore[attr-defined]
    vinelm.estimate.nothing,  # type: ignore[attr-defined]
    vinelm.evaluate.nothing,  # type: ignore[attr-defined]
    vinelm.llm_judge.nothing,  # type: ignore[attr-defined]
    vinelm.load_trie.nothing,  # type: ignore[attr-defined]
    vinelm.load_workflow.nothing,  # type: ignore[attr-defined]
    vinelm.plan.nothing,  # type: ignore[attr-defined]
    vinelm.profile.nothing,  # type: ignore[attr-defined]
    vinelm.read_dataset.nothing,  # type: ignore[attr-defined]
    vinelm.report.nothing,  # type: ignore[attr-defined]
    vinelm.save_trie.nothing,  # type: ignore[attr-defined]
    vinelm.try_app.nothing,  # type: ignore[attr-defined]
    vinelm.verify.nothing,  # type: ignore[attr-defined]
)
