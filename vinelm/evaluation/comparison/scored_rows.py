"""The rows of a store with their scores, by labels or by a judge, and the trie's record of the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation.comparison.referred_rows import ReferredRows
from vinelm.judging import Judgement
from vinelm.rows.observation import Observation
from vinelm.template import Template

if TYPE_CHECKING:
    from vinelm.estimator.judged.agreement import JudgeAgreement
    from vinelm.estimator.observation_table import ObservationTable
    from vinelm.estimator.validation.checks import ValidationReport
    from vinelm.traces import ObservationStore
    from vinelm.trie.annotated_trie import AnnotatedTrie

Found = Mapping[tuple[str, tuple[str, ...]], Judgement]


@dataclass(frozen=True)
class ScoredRows:
    """The rows of a store for an estimate, scored by labels, which are assumed to be correct.

    Attributes:
        rows: All rows.
    """

    is_judged: ClassVar[bool] = False
    errs: ClassVar[bool] = False
    """Whether the scores have known errors that estimates correct for."""
    notes: ClassVar[tuple[str, ...]] = ()
    """Notes about the scores for readers of the rows."""

    rows: list[Observation]

    @staticmethod
    def of_store(store: ObservationStore) -> ScoredRows:
        """Return the rows of an open store, scored by its judge's verdicts if the store uses a judge, else by labels.

        Raises:
            ConfigError: The judge that scored them disagrees with the labels.
            EvidenceError: A judge scores them, and no answer has a verdict.
        """
        from vinelm.traces.store.judgements import Judgements

        records, rows = Judgements(store), store.observations()
        if not records.are_in_force:
            return ScoredRows(rows)
        return JudgedRows.of(rows, records.latest(), store.identity.bound_template())

    @property
    def meta(self) -> dict[str, Any]:
        """The facts about the scores that a trie stores in its dict ``meta``; empty if labels score the rows."""
        return {}

    def require_stop(self, template: Template) -> None:
        """Raise :class:`ConfigError` if the scores do not tell where requests end under the stop rule of ``template``.

        Labels always tell, so this class never raises.
        """

    def referred(self, store: ObservationStore) -> ReferredRows | None:
        """Return the object that scores results without a label by comparison with the current setup's answers; None if
        every result is scored by a label.
        """
        return ReferredRows.of_store(store)

    def corrected(self, annotated: AnnotatedTrie, cells: ObservationTable) -> AnnotatedTrie:
        """Return the trie with its estimates corrected for the known errors of the scores; this class knows none and
        returns ``annotated``.

        ``cells`` has the rows that the trie was estimated from.
        """
        return annotated

    def corrected_report(self, report: ValidationReport) -> ValidationReport:
        """Return the report with its figures corrected for the known errors of the scores; this class knows none and
        returns ``report``.
        """
        return report


@dataclass(frozen=True)
class JudgedRows(ScoredRows):
    """The rows of a store whose answers a judge model has scored. An answer's success is the judge's verdict on it, or None
        without a verdict.

    Attributes:
        labelled: For each row with a label and a verdict: (request id, whether the judge calls the answer right, whether the
            label
                does).
        facts: Facts about the judge, which a trie stores in ``meta["judge"]``.
    """

    is_judged: ClassVar[bool] = True
    notes: ClassVar[tuple[str, ...]] = (
        "A judge scored the answers: accuracies and gains are those of its verdicts, whose errors are not corrected here;"
        " `vinelm estimate` does.",
    )

    labelled: list[tuple[str, bool, bool]]
    facts: dict[str, Any]

    @staticmethod
    def of(rows: Sequence[Observation], found: Found, template: Template) -> JudgedRows:
        """Return the rows with their success taken from the judge's verdicts.

        Args:
            rows: The rows of the store.
            found: The judge's verdicts, keyed by (request id, models up to the row's call).
            template: The workflow's stages, each with its models, as the store has them.

        Raises:
            ConfigError: The judge disagrees with the labels.
            EvidenceError: No answer has a verdict.
        """
        from vinelm.estimator.judged.agreement import JudgeAgreement

        answerable = {stage.name: stage.answerable for stage in template.stages}
        taken = [_scored(row, found, answerable[row.stage]) for row in rows]
        answers = [row for row in taken if row.failure is None and answerable[row.stage]]
        labelled = [
            (row.request_id, judgement.correct, judgement.truth)
            for row in answers
            if (judgement := found.get((row.request_id, row.prefix))) is not None
            and judgement.correct is not None
            and judgement.truth is not None
        ]
        if answers and all(row.success is None for row in answers):
            raise EvidenceError(
                "the judge gave no verdict on any answer: look at its replies, and profile again to ask it again"
            )
        facts: dict[str, Any] = {
            "model": ", ".join(dict.fromkeys(judgement.model for judgement in found.values())),
            "verdicts": sum(row.success is not None for row in answers),
            "unscored": sum(_lacks_verdict(row, found) for row in rows if row.failure is None and answerable[row.stage]),
            "cost_usd": sum(judgement.cost_usd for judgement in found.values()),
            "is_corrected": bool(labelled),
        }
        if not labelled:
            return JudgedRows(taken, labelled, facts)
        agreement = JudgeAgreement.of(labelled)
        agreement.require()
        return CorrectedRows(taken, labelled, facts | agreement.to_dict(), agreement)

    @property
    def meta(self) -> dict[str, Any]:
        """The facts about the judge that a trie stores in its dict ``meta``, under the key ``judge``."""
        return {"judge": self.facts}

    def require_stop(self, template: Template) -> None:
        """Raise :class:`ConfigError` if the verdicts cannot tell when requests stop; see :meth:`ScoredRows.require_stop`."""
        template.rule.require_served(ConfigError(_ORACLE))

    def referred(self, store: ObservationStore) -> None:
        """Return None: judged rows need no comparison with today's answers; see :meth:`ScoredRows.referred`."""


@dataclass(frozen=True)
class CorrectedRows(JudgedRows):
    """The rows of a store that a judge has scored, some of which have labels, so that the judge's errors are known.

    Attributes:
        agreement: The judge's agreement with the labels.
    """

    errs: ClassVar[bool] = True

    agreement: JudgeAgreement

    def corrected(self, annotated: AnnotatedTrie, cells: ObservationTable) -> AnnotatedTrie:
        """Return the estimate, corrected for the judge's errors; see :meth:`ScoredRows.corrected`."""
        from vinelm.estimator.judged.correction import corrected_trie, failed_share

        return corrected_trie(annotated, self.agreement, failed_share(cells))

    def corrected_report(self, report: ValidationReport) -> ValidationReport:
        """Return the report, corrected for the judge's errors; see :meth:`ScoredRows.corrected_report`."""
        from vinelm.estimator.judged.correction import corrected_report

        return corrected_report(report, self.agreement)


_ORACLE = "the oracle stop ends where the answer is right, which a judge does not know: estimate for the workflow's own stop"


def _scored(row: Observation, found: Found, is_answer: bool) -> Observation:
    if row.failure is not None or not is_answer:
        return row
    judgement = found.get((row.request_id, row.prefix))
    return replace(row, success=None if judgement is None else judgement.correct)


def _lacks_verdict(row: Observation, found: Found) -> bool:
    """Return whether the judge gave no verdict on a row's answer.

    If the row shows no answer that the judge could score, the result is False.
    """
    judgement = found.get((row.request_id, row.prefix))
    return row.success is not None if judgement is None else judgement.correct is None
