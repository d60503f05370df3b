"""The results as tables of at most 80 columns."""

from __future__ import annotations

import textwrap
from typing import Any

from signals_parts.curves import MIXED, UNMIXED
from signals_parts.methods import TITLES
from signals_parts.results import interval, share

WIDTH = 79
SHORT = {
    "single": "single",
    "mixed_single": "mixed",
    "two_agree": "agree",
    "path_only": "paths",
    "static": "static",
    "kind_table": "kind",
    "knn": "near",
}


def as_text(result: dict[str, Any]) -> str:
    """One table per data table, depth and sampler."""
    lines = [line for text in result["about"] for line in textwrap.wrap(text, WIDTH)]
    for name, table in result["tables"].items():
        lines += [
            "",
            f"== {name}: {table['requests']} requests in {table['groups']} groups",
            *textwrap.wrap(table["about"], WIDTH),
        ]
        prices = ", ".join(f"{s} ${one['usd_per_1000']:.3g}" for s, one in table["systems"].items())
        lines += textwrap.wrap(f"dollars per 1,000: {prices}", WIDTH)
        for depth, samplers in table["depths"].items():
            for sampler, found in samplers.items():
                bought = f"{found['rows']:.0f} rows by {sampler!r}, {found['continued_rows']:.0f} below a passed check"
                bought += f", ${found['spent_usd']:.3g}"
                lines += ["", *textwrap.wrap(f"depth {depth}, {bought}", WIDTH), *of_methods(found), *by_budget(found)]
                lines += ["", *at_equal_dollars(found["equal_dollars"])]
    return "\n".join(lines)


def at_equal_dollars(found: dict[str, Any]) -> list[str]:
    """Leads of VineLM over each rival at VineLM's own dollars, dollars saved at equal accuracy, and what was promised."""
    lines = [f"{'at equal dollars, points':<27} {'mixed':>20} {'one plan':>20} {'dollars':>8}"]
    lines += [f"{'with kinds, over ' + name:<27} {interval(lead):>20}" for name, lead in found["kinds_over"].items()]
    for name, lead in found["over"][MIXED].items():
        alone = found["over"][UNMIXED][name]
        lines.append(f"over {TITLES.get(name, name):<22} {interval(lead):>20} {interval(alone):>20} {lead['dollars']:8.2f}")
    best, gain = found["best_rival"], found["mixed_less_unmixed_at_the_same_bound"]
    hindsight = interval(found["over_in_hindsight"][best])
    lines += textwrap.wrap(f"best rival: {TITLES.get(best, best)}; mixed in hindsight, VineLM is over it by {hindsight}", WIDTH)
    lines.append(f"two plans mixed over one at the same bound: {interval(gain)}")
    for reference, by_method in found["saved"].items():
        lines.append(f"dollars saved where as accurate as {reference.replace('_', ' ')}: {share(by_method[MIXED])}")
    said = found["promises"][MIXED]
    lines += [
        f"promised less achieved {100 * said['promised_less_achieved']:+.1f},",
        f"90 % intervals cover {said['covered_at_90']:.2f}, spent over bound {said['spent_over_bound']:.2f}",
    ]
    return lines


def of_methods(found: dict[str, Any]) -> list[str]:
    """Means over the budgets; differences in points with 95 % intervals."""
    columns = f"{'right':>6} {'$/1,000':>8} {'over static plan':>20} {'prom.':>6} {'spent':>6} {'plan s':>7}"
    lines = [f"{'mean over budgets':<17} {columns}"]
    for name, one in found["methods"].items():
        gap = found["differences"]["static"].get(name)
        over = "" if gap is None else f"{100 * gap['value']:+5.1f} [{100 * gap['low']:+.1f}, {100 * gap['high']:+.1f}]"
        promised, spent = one["promised_less_achieved"], one["spent_over_promised"]
        lines.append(
            f"{TITLES.get(name, name):<17} {one['accuracy']:6.3f} {1000 * one['cost_usd']:8.2f} {over:>20} "
            f"{'' if promised is None else f'{100 * promised:+.1f}':>6} {'' if spent is None else f'{spent:.2f}':>6} "
            f"{one['plan_s']:7.2f}"
        )
    for name, one in found["methods"].items():
        if one["ece_points"] is not None:
            returned, histories = one["ece_points"]["returned"], one["ece_points"]["histories"]
            lines.append(
                f"ECE of {TITLES.get(name, name)}'s P(right): {returned:.1f} (returned), {histories:.1f} (every history) points"
            )
    return lines


def by_budget(found: dict[str, Any]) -> list[str]:
    """Accuracy under each budget, a column per method."""
    methods = found["methods"]
    wide = min(8, (WIDTH - 8) // len(methods))
    short = {name: SHORT.get(name, TITLES.get(name, name).split()[0])[: wide - 1] for name in methods}
    lines = ["", f"{'$/1,000':>8}" + "".join(f"{short[name]:>{wide}}" for name in methods)]
    rows = next(iter(methods.values()))["budgets"]
    for i in sorted(range(len(rows)), key=lambda i: rows[i]["max_cost_usd"]):
        mark = " " if rows[i]["is_in_mean"] else "*"
        figures = "".join(f"{methods[name]['budgets'][i]['accuracy']:{wide}.3f}" for name in methods)
        lines.append(f"{1000 * rows[i]['max_cost_usd']:7.2f}{mark}{figures}")
    return [*lines, "* not part of the mean"]


def of_equal_spend(result: dict[str, Any]) -> str:
    """The tables of `compare_policies.py`: accuracy in percent at equal spend, a column per method."""
    lines = []
    for name, table in result["tables"].items():
        for amount, rows in table["bounds"].items():
            lines += ["", f"== {name}: accuracy in percent at equal {amount}", *textwrap.wrap(table["about"], WIDTH), ""]
            methods = rows[0]["methods"]
            head = "$/1,000" if amount == "dollars" else "seconds"
            lines.append(f"{head:>8}" + "".join(f"{SHORT.get(one, TITLES.get(one, one)):>10}" for one in methods))
            scale = 1000.0 if amount == "dollars" else 1.0
            for row in rows:
                figures = "".join(f"{100 * one['accuracy']['value']:10.1f}" for one in row["methods"].values())
                lines.append(f"{scale * row['cap']:8.3g}{figures}")
            lines.append("lead of VineLM over each, points, 95 %:")
            for row in rows:
                leads = [
                    f"{TITLES.get(one, one)} {100 * lead['value']:+.1f} [{100 * lead['low']:+.1f}, {100 * lead['high']:+.1f}]"
                    for one, figures in row["methods"].items()
                    if (lead := figures.get("vinelm_over_it"))
                ]
                lines += textwrap.wrap(f"{scale * row['cap']:.3g}: {'; '.join(leads)}", WIDTH, subsequent_indent="  ")
    return "\n".join(lines).lstrip()
