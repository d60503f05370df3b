"""The rows of a store that a judge scored, and what the trie says about the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from vinelm.errors import EvidenceError
from vinelm.judging import Judgement
from vinelm.rows.observation import Observation
from vinelm.template import Template

if TYPE_CHECKING:
    from vinelm.estimator.judged.agreement import JudgeAgreement
    from vinelm.traces import ObservationStore

Found = Mapping[tuple[str, tuple[str, ...]], Judgement]


@dataclass(frozen=True)
class JudgedRows:
    """The rows of a judged store as an estimate takes them.

    Attributes:
        rows: All rows; the success of an answer is its verdict, and None where there is none.
        agreement: With the labels; None where no row has a label and a verdict.
        labelled: (request, verdict, truth) of each row that has both.
        facts: Provenance for ``meta["judge"]``.
    """

    rows: list[Observation]
    agreement: JudgeAgreement | None
    labelled: list[tuple[str, bool, bool]]
    facts: dict[str, Any]

    @classmethod
    def of_store(cls, store: ObservationStore) -> Self | None:
        """Return the judged rows of an open store; None if no judge scores it.

        Raises:
            ConfigError: The judge disagrees with the labels.
            EvidenceError: No answer has a verdict.
        """
        from vinelm.traces.store.judgements import Judgements

        records = Judgements(store)
        if not records.are_in_force:
            return None
        return cls.of(store.observations(), records.latest(), store.identity.bound_template())

    @classmethod
    def of(cls, rows: Sequence[Observation], found: Found, template: Template) -> Self:
        """Return the judged rows.

        Args:
            rows: Those of the store.
            found: Its judgements.
            template: Its bound template.

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
        agreement = JudgeAgreement.of(labelled) if labelled else None
        if agreement is not None:
            agreement.require()
        facts = {
            "model": ", ".join(dict.fromkeys(judgement.model for judgement in found.values())),
            "verdicts": sum(row.success is not None for row in answers),
            "unscored": sum(_lacks_verdict(row, found) for row in rows if row.failure is None and answerable[row.stage]),
            "cost_usd": sum(judgement.cost_usd for judgement in found.values()),
            "is_corrected": agreement is not None,
            **({} if agreement is None else agreement.to_dict()),
        }
        return cls(taken, agreement, labelled, facts)


def _scored(row: Observation, found: Found, is_answer: bool) -> Observation:
    if row.failure is not None or not is_answer:
        return row
    judgement = found.get((row.request_id, row.prefix))
    return replace(row, success=None if judgement is None else judgement.correct)


def _lacks_verdict(row: Observation, found: Found) -> bool:
    """True if the row's answer should be judged but has no verdict; some rows have no visible answer yet."""
    judgement = found.get((row.request_id, row.prefix))
    return row.success is not None if judgement is None else judgement.correct is None
