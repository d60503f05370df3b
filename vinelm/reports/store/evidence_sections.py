"""Builds the evidence of a report: how reliable the check and the signals are on the recorded results; models, prices and
versions.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version

from vinelm.catalog import Catalog
from vinelm.evaluation.store_sweeps.check_quality import check_quality, share_interval
from vinelm.prompts.layout import StagePrompts
from vinelm.reports.document import Row, Section, Table
from vinelm.reports.formatting import PROMPT_COLUMNS, PROMPT_TITLE, percent, prompt_row, usd
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.verdicts.store_comparison import StoreComparison
from vinelm.version import __version__

Facts = tuple[tuple[str, str], ...]


def prompt_table(stages: Sequence[StagePrompts]) -> Table:
    """Return a table of each stage's prompt tokens: static, shared with other requests, or repeated within a request."""
    return Table(
        title=PROMPT_TITLE,
        columns=tuple(name.removeprefix("<") for name in PROMPT_COLUMNS),
        rows=tuple(Row(cells=prompt_row(stage)) for stage in stages),
        text_columns=(0, len(PROMPT_COLUMNS) - 1),
        note="Static is what every request of a stage sends first, shared what other requests send too, request what the same "
        "request sends again. Counted at four bytes of text a token.",
        is_folded=True,
    )


def check_section(rows: Sequence[Observation]) -> Section | None:
    """Return a section on how well the workflow's own check agrees with the labels; None if no row has both a check result
    and a label.
    """
    found = check_quality(rows)
    if not found:
        return None
    whole = found[0]
    if not whole.accepted:
        finding = "The check accepted none of these answers."
    else:
        low, high = share_interval(whole.accepted_wrong, whole.accepted)
        finding = (
            f"{percent(whole.accepted_wrong / whole.accepted)} of the answers that the check accepts are wrong "
            f"(95 %: {100 * low:.1f} to {100 * high:.1f})."
        )
    right = whole.answers - whole.accepted_wrong - (whole.refused - whole.refused_right)
    refusal = (
        f"It refuses {percent(whole.refused_right / right)} of the right answers." if right > 0 else "No answer was right."
    )
    shown = tuple(
        Row(
            cells=(
                one.model or "all models", f"{one.answers:,}", percent(one.accepted / one.answers),
                percent(one.accepted_wrong / one.accepted) if one.accepted else "-",
                percent(one.refused_right / one.refused) if one.refused else "-",
            )
        )
        for one in found
    )  # fmt: skip
    return Section(
        title="The workflow's own check",
        intro="A request may leave the workflow when its own check accepts an answer. Labels say whether that was right. "
        "Counted are first answers: who gets a second one depends on the check.",
        findings=(finding, refusal),
        parts=(
            Table(
                title="First answers by model",
                columns=("model", "answers", "accepted", "wrong of accepted", "right of refused"),
                rows=shown,
            ),
        ),
    )  # fmt: skip


def signals_section(comparison: StoreComparison, annotated: AnnotatedTrie) -> Section:
    """Return a section on the accuracy gained by plans that depend on signals, which are what answers show without labels.

    They are compared with plans that depend only on the stages and models so far.
    """
    gain = comparison.signals_gain
    if gain is None:
        why = (
            "The workflow declares nothing that its requests show." if annotated.signals is None else "It was not judged here."
        )
        text = f"Not known. {why}"
    elif gain.is_same:
        text = "Nothing here: at every budget the plan is the same as without them."
    elif not gain.is_identified:
        text = "Not identified: too few rows follow a plan over signals to its end."
    else:
        value, low, high = (100 * x for x in (gain.value, gain.low, gain.high))
        settled = "" if gain.low > 0 or gain.high < 0 else " That may be nothing."
        text = f"{value:+.1f} points of accuracy at the same budgets, mean over the budgets "
        text += f"(95 %: {low:+.1f} to {high:+.1f}).{settled}"
    return Section(
        title="What signals are worth",
        intro="A signal is what an answer shows without its label: that the check passed, a label of the workflow's own, or "
        "that answers agree. VineLM over signals chooses the next model by it.",
        findings=(text,),
    )


def catalog_facts(catalog: Catalog) -> Facts:
    """Return facts about a catalog, for the end of a page: its models and the dates of their prices."""
    days = sorted(model.price.as_of for model in catalog.models)
    dated = f"{days[0]}" if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return (("Models", f"{len(catalog)}: {', '.join(catalog)}"), ("Prices as of", dated))


def version_facts() -> Facts:
    """Return the versions of VineLM, Python and the main packages, for the end of a page."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("langgraph", "numpy", "matplotlib"))
    return (("Made by", f"vinelm {__version__}, Python {platform.python_version()}, {packages}"),)


def price_table(catalog: Catalog) -> Table:
    """Return a table of the catalog's prices with date and source."""
    rows = tuple(
        Row(cells=(m.name, usd(m.price.input), usd(m.price.output), str(m.price.as_of), m.price.source)) for m in catalog.models
    )
    columns = ("model", "$ per million in", "$ per million out", "as of", "source")
    return Table(title="Prices", columns=columns, rows=rows, text_columns=(0, 4), is_folded=True)


TERMS = (
    ("policy", "A rule that says which model runs next, and when a request ends."),
    ("single model", "Every invocation runs on one model."),
    ("static plan", "One model for each stage, the same for every request."),
    ("VineLM over paths", "A model for each invocation in turn; a request leaves when the workflow's stop rule ends it."),
    ("VineLM over signals", "The next model depends on what the answers so far show, and an earlier answer may be returned."),
    ("vote", "Several models answer, and the answer that most of them give is returned."),
    ("until two agree", "Models are asked one after the other until two give the same answer."),
    ("promised", "The accuracy that the planning half estimated for its own plan."),
    ("right, achieved", "The accuracy that the other half of the requests found, weighted by how likely each row was bought."),
    ("95 % interval", "Were the requests drawn again, 95 of 100 such intervals would hold the true value."),
    ("effective requests", "So many requests, each followed to its end, would say as much as the weighted rows."),
    ("not identified", "The store has too few rows of what the policy does: nothing can be said without serving it."),
    ("p50, p95, p99", "Half, 95 % and 99 % of the requests take at most so long."),
    ("$ per 1,000", "Dollars of 1,000 requests, tools included."),
)
"""Terms of the page for a first reader."""
