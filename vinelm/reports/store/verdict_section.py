"""The verdict of an evaluation on a page: what `vinelm evaluate` prints, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.evaluation import Evaluation, JudgedPolicy
from vinelm.evaluation.roles import Role
from vinelm.reports.evaluation_text import (
    BUDGET_COLUMNS,
    budget_rows,
    budget_title,
    evaluation_columns,
    evaluation_lines,
    evaluation_rows,
    evaluation_sentence,
    evaluation_title,
    gain_columns,
    gain_rows,
    gain_title,
)
from vinelm.reports.page.document import Row, Section, Table

_INTRO = (
    "Each half of the requests chose plans, and the other half judged them, so that no plan is judged by the requests that it "
    "was chosen from. Two plans after a slash are those of the two halves."
)


def verdict_section(found: Evaluation) -> Section:
    """Return the verdict with the figures behind it; against a plan in use those of both aims."""
    shown = found.aims or (found,)
    lines = evaluation_lines(found)
    if len(shown) > 1:
        lines = [evaluation_sentence(one) for one in shown if one.verdict != found.verdict] + lines
    parts = [table for one in shown for table in (_policies(one), _gains(one))]
    if found.by_budget:
        parts.append(_budgets(found))
    return Section(title="The verdict", intro=_INTRO, findings=tuple(lines), parts=tuple(parts))


def role_of(name: str, has_signals: bool) -> Role:
    """Return the role of a policy: VineLM is what plans over signals where there are any, else what plans paths."""
    if name == "signals":
        return "vinelm"
    if name == "in_use":
        return "single"
    return "vinelm" if name == "paths" and not has_signals else name  # type: ignore[return-value]


def _policies(found: Evaluation) -> Table:
    return _table(found, evaluation_title(found), evaluation_columns(found), found.policies, evaluation_rows(found))


def _gains(found: Evaluation) -> Table:
    compared = [one for one in found.policies if one.against]
    return _table(found, gain_title(found), gain_columns(found), compared, gain_rows(found))


def _table(
    found: Evaluation,
    title: str,
    columns: Sequence[str],
    policies: Sequence[JudgedPolicy],
    cells: Sequence[tuple[str, ...]],
) -> Table:
    has_signals = found.policy("signals") is not None
    rows = tuple(
        Row(role=role_of(one.name, has_signals), cells=each, detail=" / ".join(one.plans))
        for one, each in zip(policies, cells, strict=True)
    )
    return Table(title=title, columns=tuple(columns), rows=rows)


def _budgets(found: Evaluation) -> Table:
    rows = tuple(Row(role="vinelm", cells=cells) for cells in budget_rows(found))
    return Table(title=budget_title(found), columns=BUDGET_COLUMNS, rows=rows, text_columns=(4,))
