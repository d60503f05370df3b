"""Describes an evaluation: the verdict's comparison, tables of policies and gains, and how many requests to serve for more
certainty.
"""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.evaluation import Evaluation, JudgedPolicy, OffPolicyEstimate
from vinelm.evaluation.off_policy.intervals import LEAST_EFFECTIVE, MOST_UNSUPPORTED
from vinelm.evaluation.plans.plans import Role
from vinelm.reports.document import Row, Table
from vinelm.reports.formatting import oracle_words, page_objective_words, percent, under_oracle, usd
from vinelm.trie.verdict import Verdict, columns, table_rows

NOT_IDENTIFIED = "not identified"


def verdict_table(found: Verdict) -> Table | None:
    """Return a table of the baseline and every plan compared with it; None if no plan was compared."""
    rows = list(table_rows(found))
    if not rows:
        return None
    return Table(
        title="Compared, each judged by requests that did not choose it",
        columns=tuple(name.removeprefix("<") for name in columns(found)),
        rows=tuple(Row(role="in_use" if not i else "vinelm", cells=one) for i, one in enumerate(rows)),
        note="*: the plan that the verdict is about. The ends hold for the best of all compared plans.",
    )


def role_of(name: str, has_signals: bool) -> Role:
    """Return the role of the policy called ``name``; the role sets the policy's colour in charts.

    The main policy has the role ``vinelm``. It is the plan that depends on signals (what answers show without labels). If
    ``has_signals`` is False, it is the plan that depends on the stages and models so far only.
    """
    if name == "signals":
        return "vinelm"
    if name == "no_kinds":
        return "paths"
    return "vinelm" if name == "paths" and not has_signals else name  # type: ignore[return-value]


def evaluation_tables(found: Evaluation) -> tuple[Table, ...]:
    """Return a table of the policies, a table of the gains between policies, and a table of budgets if there are several.

    A gain is a mean of differences on the same requests.
    """
    return (_policies(found), _gains(found), *((_budgets(found),) if found.by_budget else ()))


def _policies(found: Evaluation) -> Table:
    rows = [
        (
            one.title,
            percent(one.accuracy.value),
            _percents(one.accuracy),
            _thousand(one.cost_usd.value),
            f"{one.accuracy.effective:,.0f}",
        )
        if one.accuracy.is_identified
        else (one.title, *_by_the_model(one), f"{one.accuracy.effective:,.0f}")
        for one in found.policies
    ]
    columns = ("policy", "accuracy", f"{_level(found)} % interval", "$ / 1,000", "effective n")
    return Table(title=_planned_for(found), columns=columns, rows=_of_policies(found, found.policies, rows))


def _planned_for(found: Evaluation) -> str:
    stop = under_oracle(found.stop)
    if len(found.objectives) == 1:
        return f"{page_objective_words(found.objectives[0])}{stop}"
    caps = [one.max_cost_usd for one in found.objectives if one.max_cost_usd is not None]
    ends = f"{_thousand(min(caps))} to {_thousand(max(caps))} per 1,000 requests"
    return f"Maximize accuracy, mean over {len(caps)} budgets from {ends}{stop}"


_OVER = {"static": "over static plan", "single": "over single model"}


def _gains(found: Evaluation) -> Table:
    shown = [one for one in found.policies if one.against]
    rows = [(one.title, *(_versus(found, one, name) for name in found.headline.against)) for one in shown]
    unit = {"accuracy": "points of accuracy", "cost": "dollars saved per 1,000 requests", "latency": "seconds saved"}
    return Table(
        title=f"Paired gains, {unit[found.target]} ({_level(found)} % interval){under_oracle(found.stop)}",
        columns=("gain of", *(_OVER[name] for name in found.headline.against)),
        rows=_of_policies(found, shown, rows),
    )


def _of_policies(found: Evaluation, policies: Sequence[JudgedPolicy], cells: Sequence[tuple[str, ...]]) -> tuple[Row, ...]:
    has_signals = found.policy("signals") is not None
    return tuple(
        Row(role=role_of(one.name, has_signals), cells=each, detail=" / ".join(one.plans))
        for one, each in zip(policies, cells, strict=True)
    )


def _budgets(found: Evaluation) -> Table:
    """Return a table with a row for each budget: VineLM's accuracy, and its gain over the fixed plan and the single model."""
    rows = [
        (
            _thousand(one.objectives[0].max_cost_usd or 0.0),
            f"{'' if one.headline.accuracy.is_identified else '~'}{percent(one.headline.accuracy.value)}",
            *(_versus(one, one.headline, name) for name in ("static", "single")),
        )
        for one in found.by_budget
    ]
    together = f"({_level(found.by_budget[0])} %, all hold together)"
    return Table(
        title=f"Each budget alone, points of accuracy {together}{under_oracle(found.stop)}",
        columns=("$/1,000", "VineLM", "over static", "over single"),
        rows=tuple(Row(role="vinelm", cells=cells) for cells in rows),
    )


def evaluation_lines(found: Evaluation) -> list[str]:
    """Return the paragraphs that follow the tables of an evaluation, such as the basis of its figures and notes on missing
    results.
    """
    oracle = [words] if (words := oracle_words(found.stop)) else []
    lines = [*oracle, _basis(found), *_plans(found), *_kinds(found), *found.notes]
    if any(not one.accuracy.is_identified for one in found.policies):
        lines.append(
            "~: where no row was bought, the estimate of the other requests stands in. That is no judgement, and no verdict"
            " rests on it."
        )
    lines += map(_serving, found.not_identified())
    own = found.headline
    if own.optimism is not None:
        more = "more" if own.optimism >= 0 else "less"
        lines.append(
            f"Optimism: {_name(own)} was chosen as the best of many and promised {percent(own.promised_accuracy)},"
            f" {100 * abs(own.optimism):.1f} points {more} than it is judged to reach."
        )
    return lines


def _basis(found: Evaluation) -> str:
    simulated = " Simulated models." if found.is_simulated else ""
    if found.is_served:
        early = "" if found.is_complete else " The budget ended it early."
        served = f"{found.requests:,} held-out requests were really served by every policy"
        return f"{served}, for {usd(found.spent_usd)}.{early}{simulated}"
    return (
        f"Estimated from {found.rows:,} rows of {found.requests:,} requests: each quarter is judged by plans of the others"
        " (doubly robust). Effective n: that many requests, followed to the end, would say as much. Nothing was called."
        f"{simulated}"
    )


def _plans(found: Evaluation) -> list[str]:
    shown = (found.headline, *(one for name in ("static", "single") if (one := found.policy(name)) is not None))
    return [f"{_name(one)}: {' / '.join([*one.plans[:2], *(['...'] if len(one.plans) > 2 else [])])}" for one in shown]


def _kinds(found: Evaluation) -> list[str]:
    """Return a list with a paragraph on how much is gained by planning separately for each request type (kind).

    The paragraph advises whether to declare types. The list is empty if none are declared.
    """
    gain = found.kinds
    if gain is None:
        return []
    if gain.is_same:
        return ["Kinds of request: the plans that look at the kind are those that do not. They are not worth declaring."]
    if not gain.is_identified:
        lacking = _lacking(gain.unsupported, gain.effective)
        return [f"Kinds of request: the rows do not show what they are worth: {lacking}. Profile more, or leave them out."]
    told = f"Kinds of request, at equal expected dollars: {_gain(found, gain)} over VineLM without them."
    if gain.low > 0.0:
        return [f"{told} They are worth declaring."]
    if gain.high < 0.0:
        return [f"{told} Take the declaration back: without it plans are better."]
    return [f"{told} That shows no gain: they are not worth declaring by these rows."]


def _by_the_model(one: JudgedPolicy) -> tuple[str, str, str]:
    """Return (accuracy, a note in place of its interval, cost) as texts, for a policy with too few recorded results for a test.

    Both figures are predictions of the statistical model.
    """
    right = min(max(one.accuracy.value, 0.0), 1.0)
    return f"~{percent(right)}", NOT_IDENTIFIED, f"~{_thousand(max(one.cost_usd.value, 0.0))}"


def _serving(one: JudgedPolicy) -> str:
    """Return a sentence that says which recorded results are missing to test a policy, and how to test it by serving
    requests.
    """
    compared = (one.accuracy, *one.against.values())
    lacking = _lacking(max(each.unsupported for each in compared), min(each.effective for each in compared))
    return f"{_name(one)} is not identified: {lacking}. Serving held-out requests identifies it: `--serve 200`."


def _name(one: JudgedPolicy) -> str:
    """Return the policy's name as it is used within a sentence."""
    return one.title.replace(", ", " over ")


def _gain(found: Evaluation, gain: OffPolicyEstimate) -> str:
    low, high = (_number(found, value) for value in (gain.low, gain.high))
    return f"{_number(found, gain.value)} {_unit(found)} ({_level(found)} %: {low} to {high})"


def _level(found: Evaluation) -> str:
    return f"{100 * found.level:.3g}"


def _versus(found: Evaluation, one: JudgedPolicy, name: str) -> str:
    gain = one.against.get(name)
    if gain is None or not gain.is_identified:
        return NOT_IDENTIFIED
    if gain.is_same:
        return "same"
    return f"{_number(found, gain.value)} ({_number(found, gain.low)} to {_number(found, gain.high)})"


def _number(found: Evaluation, value: float) -> str:
    if found.target == "accuracy":
        return _points(value)
    return _dollars(value) if found.target == "cost" else f"{value:+.1f}"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _dollars(value: float) -> str:
    """Return a difference in cost as dollars per 1,000 requests, with its sign."""
    return f"{'-' if value < 0 else '+'}{_thousand(abs(value))}"


def _thousand(value: float) -> str:
    return usd(1000 * value)


def _unit(found: Evaluation) -> str:
    return {"accuracy": "points", "cost": "saved per 1,000 requests", "latency": "s saved"}[found.target]


def _percents(one: OffPolicyEstimate) -> str:
    low, high = max(one.low, 0.0), min(one.high, 1.0)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _lacking(without_rows: float, effective: float) -> str:
    if without_rows > MOST_UNSUPPORTED:
        return f"{percent(without_rows)} of the requests come to a step of a plan for which no row was bought"
    return f"the rows follow the plans for {effective:.0f} effective requests, and {LEAST_EFFECTIVE:.0f} are needed"
