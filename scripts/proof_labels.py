"""How many labels a proof takes on recorded answers of real models, and how often it is false.

    python scripts/proof_labels.py --data ../shared/data --draws 200 --results results/proof.json

Today's model is the strongest of a table, plans are single cheaper models, "two or three agree, else today's", "the check
passes, else today's" and the like (`proof_parts/plans.py`). Requests are drawn from the table with replacement, so that its
means are the truth; persons who label know the recorded score. Each draw is a race (`vinelm.proof`) at 95 %, with at most 300
labels:

- *one plan*: a given one that loses nothing; 150 requests have told the share of differing answers;
- *choice and proof*: 150 requests choose up to four of about seventy plans, fresh ones prove;
- *nothing*: only single models, which differ too much for 140 labels: is that said before a label is asked?
- *judges*: the same race of one plan with a simulated judge that names the better answer, or that they are equally good;
- *false proofs*: plans that lose just the margin, alone and as the best of four, with a biased judge, and with an equality
  that hides differences, with and without an audit.

"All labels" is what the same test takes where every request is labelled. The last part is what is in use: a plan passes if a
judge of 85 % finds at least 90 % of its answers as good as today's.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from proof_parts.draws import Played, chosen, given
from proof_parts.plans import HIDES, Plans, load_plans
from studies import Options, each, study, table

from vinelm.proof import labels_needed

MARGINS = (0.01, 0.02, 0.03)
LABELS = 300
FEW_LABELS = 140
RULE_FROM = 20
"""The rule of thumb is for proofs that take at least so many labels in 80 %."""
LOSSLESS = 0.003
"""A plan that loses less than this loses nothing, for the goals."""
SAVED = 0.2
AUDITED = 5
"""Races with an equality that hides, in multiples of the draws: there is one such plan only."""
JUDGES: Mapping[str, float] = {"95 %": 0.95, "85 %": 0.85, "75 %": 0.75, "useless": 1 / 3}
BIASED = "biased"
JUDGED = ("exams", "classeval")
JUDGE_LABELS = 100
"""Judges are measured where a proof takes about so many labels without one."""
THRESHOLD = 0.9
PASSES = 0.85
"""How often the judge of the threshold is right."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """One row of a table: what is raced. ``at``: the plans that race, by number; empty: those that 150 requests choose."""

    part: str
    source: str
    margin: float
    at: tuple[int, ...] = ()
    judge: str = ""
    audit: float = 0.0


def verdicts(judge: str, scores: FloatArray, rng: np.random.Generator) -> FloatArray:
    """What the judge says of each request: 1, 0 or -1, as the score would, or one of the other two."""
    truth = np.sign(scores)
    if judge == BIASED:  # right in 85 %, but half of all verdicts are "better", whatever is true
        return np.where(rng.random(len(truth)) < 0.5, 1.0, verdicts("85 %", scores, rng))
    wrong = (truth + 1 + rng.integers(1, 3, len(truth))) % 3 - 1
    return np.where(rng.random(len(truth)) < JUDGES[judge], truth, wrong)


def measure_cell(cell: Cell, *, tables: Mapping[str, Plans], draws: int) -> dict[str, Any]:
    """Race in every draw, and say what it took."""
    plans, draws = tables[cell.source], draws * (AUDITED if cell.source == HIDES else 1)
    settings: dict[str, Any] = {"audit": cell.audit}
    if cell.judge:
        settings["verdicts"] = partial(verdicts, cell.judge)
    if len(cell.at) == 1:
        limit = LABELS if cell.part in ("one", "false") else None
        races = [given(plans, cell.at[0], draw, cell.margin, labels=limit, **settings) for draw in range(draws)]
    else:
        limit = FEW_LABELS if cell.part == "nothing" else LABELS
        races = [chosen(plans, draw, cell.margin, limit, cell.at or None, **settings) for draw in range(draws)]
    return {"part": cell.part, "table": cell.source, "margin": cell.margin, "judge": cell.judge, "audit": cell.audit} | figures(
        plans, cell, races
    )


def figures(plans: Plans, cell: Cell, races: list[Played]) -> dict[str, Any]:
    """Shares and quantiles over the races of a cell. An unproven race took infinitely many labels."""
    diff, proven = plans.diff(), [one for one in races if one.candidate]
    false = sum(diff[plans.names.index(one.candidate)] <= -one.margin + 1e-9 for one in proven)
    took = np.array([one.labels if one.candidate else math.inf for one in races])
    asked = np.array([one.requests if one.candidate else math.inf for one in races])
    found = {
        "races": len(races),
        "proven": len(proven) / len(races),
        "false": int(false),
        "labels_50": quantile(took, 0.5),
        "labels_80": quantile(took, 0.8),
        "requests_50": quantile(asked, 0.5),
        "labels_mean": float(np.mean([one.labels for one in races])),
        "requests_mean": float(np.mean([one.requests for one in races])),
        "all_labels_50": quantile(asked, 0.5),
        "said_before": sum(one.reason == "hopeless" and not one.labels for one in races) / len(races),
        "saved": float(np.mean([plans.saved()[plans.names.index(one.candidate)] for one in proven])) if proven else None,
        **{f"within_{most}": float((took <= most).mean()) for most in (80, 90, 120, 140, LABELS)},
    }
    if len(cell.at) == 1:
        at = cell.at[0]
        half, most = (
            labels_needed(float(plans.differing()[at]), cell.margin, float(diff[at]))
            if diff[at] > -cell.margin
            else (None, None)
        )
        found |= {"plan": plans.names[at], "differing": float(plans.differing()[at]), "diff": float(diff[at])}
        found |= {"rule_50": half, "rule_80": most, "within_rule": None if most is None else float((took <= most).mean())}
    return found


def quantile(values: FloatArray, share: float) -> float | None:
    """The smallest value that at least this share of them does not exceed; None if that is infinite."""
    found = float(np.quantile(values, share, method="inverted_cdf"))
    return found if math.isfinite(found) else None


# -- what is raced ---------------------------------------------------------------------------------------------


def attractive(plans: Plans) -> NDArray[np.int64]:
    """Plans that save enough, most promising first."""
    worth = plans.saved() / (plans.differing() + 0.02) ** 2
    return np.array([at for at in np.argsort(-worth, kind="stable") if plans.saved()[at] >= SAVED], dtype=int)


def lossless(plans: Plans, most: float = 1.0) -> int | None:
    """The most promising plan that loses nothing and differs in at most this share."""
    return next((int(at) for at in attractive(plans) if plans.diff()[at] >= -LOSSLESS and plans.differing()[at] <= most), None)


def differs_most(plans: Plans) -> int | None:
    """The plan that differs most of those that lose nothing, and differ in less than a fifth of the requests."""
    kept = [at for at in attractive(plans) if plans.diff()[at] >= -LOSSLESS and plans.differing()[at] < 0.2]
    return max(map(int, kept), key=lambda at: plans.differing()[at], default=None)


def cells_of(tables: Mapping[str, Plans]) -> Iterator[Cell]:
    whole = {name: plans for name, plans in tables.items() if name != HIDES}
    for name, plans in whole.items():
        at = lossless(plans)
        for margin in MARGINS:
            if at is not None and labels_needed(float(plans.differing()[at]), margin, float(plans.diff()[at]))[1] <= LABELS:
                yield Cell("one", name, margin, (at,))
            yield Cell("choice", name, margin)
        if name in JUDGED and (at := differs_most(plans)) is not None:
            margin = float(plans.differing()[at] * math.sqrt(4.5 / JUDGE_LABELS) - plans.diff()[at])
            for judge in ("", *JUDGES, BIASED):
                yield Cell("judge", name, margin, (at,), judge)
        # Single models: where the rule says of all of them that 140 labels prove nothing.
        single = tuple(int(at) for at in attractive(plans) if " " not in plans.names[at])
        if single and labels_needed(float(plans.differing()[list(single)].min()), 0.02)[0] > 3 * FEW_LABELS:
            yield Cell("nothing", name, 0.02, single)
        # Plans that truly lose: the margin is what they lose, or what the best of them loses.
        losing = [int(one) for one in attractive(plans) if -0.08 <= plans.diff()[one] <= -0.008]
        for one in losing[:2]:
            yield Cell("false", name, -float(plans.diff()[one]), (one,))
        if losing:
            yield Cell("false", name, -float(plans.diff()[losing[0]]), (losing[0],), BIASED)
        if len(losing) > 1:
            yield Cell("false best", name, -max(float(plans.diff()[one]) for one in losing[:4]), tuple(losing[:4]))
    if (plans := tables.get(HIDES)) is not None:
        # The plan that hides most of what it loses.
        hidden = np.where(plans.same, plans.score, 0.0).mean(axis=0)
        one = int(np.where((plans.diff() > -0.08) & (plans.diff() < -0.008), hidden, 1.0).argmin())
        for audit in (0.0, 0.2) if hidden[one] < 0.0 else ():
            yield Cell("false", HIDES, -float(plans.diff()[one]), (one,), audit=audit)


def measure(options: Options) -> dict[str, Any]:
    tables = load_plans(options.data)
    cells = list(cells_of(tables))
    parts = ("one", "choice", "nothing", "judge", "false")
    ordered = [cell for part in parts for cell in cells if cell.part.startswith(part)]
    work = partial(measure_cell, tables=tables, draws=options.draws)
    rows = list(each(work, ordered, jobs=options.jobs, told="races", kept=options.kept))
    found = {"draws": options.draws, "today": {name: plans.today for name, plans in tables.items()}, "rows": rows}
    return found | {"judges": judged(rows), "threshold": threshold(tables), "goals": goals(rows, tables)}


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Labels and requests with each judge, over those without one, on the mean of the same draws."""
    mine = [row for row in rows if row["part"] == "judge"]
    plain = {row["table"]: row for row in mine if not row["judge"]}
    found = []
    for judge in (*JUDGES, BIASED):
        pairs = [(row, plain[row["table"]]) for row in mine if row["judge"] == judge]
        ratios = {of: [row[f"{of}_mean"] / bare[f"{of}_mean"] for row, bare in pairs] for of in ("labels", "requests")}
        if pairs:
            found.append(
                {"judge": judge} | {of: float(np.mean(of_all)) for of, of_all in ratios.items()} | {"by_table": ratios}
            )
    return found


def threshold(tables: Mapping[str, Plans]) -> dict[str, Any]:
    """Which plans pass "90 % as good as today's, by a judge of 85 %", on all requests of their table."""
    passing, lost = [], []
    for name, plans in tables.items():
        if name == HIDES:
            continue
        rng = np.random.default_rng(90)
        for at in attractive(plans):
            said = verdicts("85 %", plans.score[:, at], rng)
            passing.append(float((plans.same[:, at] | (said >= 0)).mean()) >= THRESHOLD)
            lost.append(float(plans.diff()[at]) < -0.02)
    passes, loses = np.array(passing), np.array(lost)
    return {
        "plans": len(passes),
        "lose_2_points": float(loses.mean()),
        "pass": float(passes.mean()),
        "of_passing_lose_2_points": float(loses[passes].mean()) if passes.any() else None,
        "of_losing_pass": float(passes[loses].mean()) if loses.any() else None,
    }


# -- goals -----------------------------------------------------------------------------------------------------


def goals(rows: list[dict[str, Any]], tables: Mapping[str, Plans]) -> list[dict[str, Any]]:
    """Each goal, its worst case, and whether it is met."""
    found = []

    def goal(number: int, text: str, values: list[tuple[float, str]], bound: float, *, most: bool = True) -> None:
        if values:
            worst, where = (max if most else min)(values)
            met = worst <= bound if most else worst >= bound
            found.append({"goal": number, "text": text, "bound": bound, "worst": worst, "where": where, "met": bool(met)})

    def where(row: dict[str, Any]) -> str:
        return f"{row['table']}, {100 * row['margin']:.3g} points"

    one = [row for row in rows if row["part"] == "one"]
    goal(
        1,
        "a given plan: share within 8 (d / (m + diff))² labels, if these are 20 or more",
        [(row["within_rule"], where(row)) for row in one if row["rule_80"] >= RULE_FROM],
        0.8,
        most=False,
    )
    for margin, most, share in ((0.02, 80, 0.06), (0.03, 90, 0.1)):
        held = [(row[f"within_{most}"], where(row)) for row in one if row["margin"] == margin and row["differing"] <= share]
        goal(1, f"a given plan, d <= {share}: {100 * margin:.0f} points within {most} labels", held, 0.8, most=False)
    for margin, most, share in ((0.02, 140, 0.06), (0.03, 120, 0.1)):
        there = {name for name, plans in tables.items() if lossless(plans, share) is not None}
        mine = [row for row in rows if row["part"] == "choice" and row["margin"] == margin and row["table"] in there]
        text = f"choice and proof: {100 * margin:.0f} points within {most} labels where a plan with d <= {share} loses nothing"
        goal(2, text, [(row[f"within_{most}"], where(row)) for row in mine], 0.8, most=False)
    mine = [row for row in rows if row["part"] == "choice" and row["table"] == "exams" and row["margin"] >= 0.02]
    goal(
        2,
        f"choice and proof on exams: within {LABELS} labels",
        [(row[f"within_{LABELS}"], where(row)) for row in mine],
        0.8,
        most=False,
    )
    for row in judged(rows):
        bound = {"95 %": 0.65, "85 %": 0.85, "useless": 1.1}.get(row["judge"])
        if bound is not None:
            goal(3, f"a judge, {row['judge']}: labels over those without", [(row["labels"], "mean of the tables")], bound)
        if row["judge"] == "85 %":
            goal(3, "a judge, 85 %: requests over those without", [(row["requests"], "mean of the tables")], 3.5)
    for text, mine in (
        (
            "a plan that loses the margin",
            [row for row in rows if row["part"] == "false" and not row["judge"] and row["table"] != HIDES],
        ),
        ("the best of all plans loses the margin", [row for row in rows if row["part"] == "false best"]),
        ("a biased judge", [row for row in rows if row["part"] == "false" and row["judge"]]),
        ("an equality that hides, audited", [row for row in rows if row["part"] == "false" and row["audit"]]),
        ("all other races", [row for row in rows if not row["part"].startswith(("false", "nothing"))]),
    ):
        races = sum(row["races"] for row in mine)
        if races:
            goal(4, f"false proofs, {text} ({races} races)", [(sum(row["false"] for row in mine) / races, "all tables")], 0.05)
    none = [row for row in rows if row["part"] == "nothing"]
    goal(
        5,
        "nothing can be proven: share said before a label is asked",
        [(row["said_before"], where(row)) for row in none],
        0.8,
        most=False,
    )
    return found


# -- words -----------------------------------------------------------------------------------------------------


def lines(found: dict[str, Any]) -> Iterator[str]:
    rows = [{key: "-" if value is None else value for key, value in row.items()} for row in found["rows"]]
    for row in rows:
        row["points"] = 100 * row["margin"]
        for name in ("labels_50", "labels_80", "all_labels_50", "rule_50", "rule_80"):
            row[name] = f"{row[name]:.0f}" if isinstance(row.get(name), float) else "-"
        row["usd"] = f"{100 * row['saved']:.0f} %" if isinstance(row["saved"], float) else "-"
    took = {
        "labels, median": "{labels_50}",
        "80 %": "{labels_80}",
        "all labels": "{all_labels_50}",
        "within 140": "{within_140:.0%}",
    }
    took |= {"within 300": "{within_300:.0%}", "false": "{false}", "saves": "{usd}"}
    yield f"One plan that loses nothing, {found['draws']} draws"
    rule = {"differ": "{differing:.3f}", "diff": "{diff:+.3f}", "rule": "{rule_50}; {rule_80}"}
    yield from table(
        [row for row in rows if row["part"] == "one"], {"table": "{table}", "points": "{points:.0f}"} | rule | took
    )
    yield "\nChoice and proof"
    before = {"said before": "{said_before:.0%}"}
    yield from table(
        [row for row in rows if row["part"] == "choice"], {"table": "{table}", "points": "{points:.0f}"} | took | before
    )
    yield "\nSingle models, which differ too much for 140 labels"
    columns = {
        "table": "{table}",
        "points": "{points:.0f}",
        "said before": "{said_before:.0%}",
        "labels, mean": "{labels_mean:.1f}",
    }
    yield from table([row for row in rows if row["part"] == "nothing"], columns)
    yield "\nJudges: labels and requests over those without"
    yield from table(found["judges"], {"judge": "{judge}", "labels": "{labels:.2f}", "requests": "{requests:.2f}"})
    yield "\nPlans that lose the margin"
    columns = {"table": "{table}", "points": "{points:.1f}", "race": "{part}", "judge": "{judge}", "audit": "{audit:.0%}"}
    columns |= {"races": "{races}", "false proofs": "{false}", "share": "{proven:.1%}"}
    yield from table([row for row in rows if row["part"].startswith("false")], columns)
    yield "\nA judge of 85 % and a threshold of .9"
    yield "{plans} plans that save 20 %: {lose_2_points:.0%} lose 2 points; {of_losing_pass:.0%} of these pass".format(
        **found["threshold"]
    )
    yield "\nGoals"
    for goal in found["goals"]:
        met = "met" if goal["met"] else "missed"
        yield f"({goal['goal']}) {met}: {goal['text']}: {goal['worst']:.3g}, goal {goal['bound']:g} ({goal['where']})"


def main() -> int:
    options = {
        "--draws": (200, "draws of each race"),
        "--jobs": (1, "processes"),
        "--kept": (Path, "file of the rows so far: the same line takes up a run that ended early", {"metavar": "FILE"}),
    }
    about = "folder with outcomes/, mixed/ and nl2sql/; files that it lacks are left out"
    return study(__doc__, options, measure, lines, data=about)


if __name__ == "__main__":
    sys.exit(main())
