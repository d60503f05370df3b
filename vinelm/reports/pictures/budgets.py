"""Builds the report section with the budget slider and the pictures for every budget. Equal pictures are drawn and embedded
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vinelm.reports.budgets import BudgetSlider, BudgetStop, StageBars
from vinelm.reports.document import Row, Table
from vinelm.reports.pictures.graph import NARROW, WIDE, plot_graph
from vinelm.reports.pictures.sketch import ColourOf, Sketch
from vinelm.reports.pictures.tree import plot_tree

_BAR, _ROW, _HEAD = 14.0, 22.0, 24.0


def plot_stage_bars(bars: StageBars, colour_of: ColourOf, kind: str, label: str, note: str = "") -> str:
    """Return the bar chart as an SVG element; ``kind`` is ``wide`` or ``narrow``.

    ``label`` describes the picture for screen readers; ``note`` is printed inside.
    """
    room = WIDE if kind == "wide" else NARROW
    names = 130.0 if kind == "wide" else 92.0
    length = room - names - 76.0
    sketch, y = Sketch(), 0.0
    for stage, plans in bars.stages:
        sketch.text(0, y + 16, stage, room=room, is_bold=True)
        y += _HEAD
        for name, parts in plans:
            x, total = names, sum(amount for _, amount in parts)
            sketch.text(0, y + 12, name, room=names - 6, size=12, colour="muted")
            for model, amount in parts:
                width = length * amount / bars.most if bars.most > 0.0 else 0.0
                sketch.bar(x, y + 1, width, _BAR, colour_of(model))
                x += width
            sketch.text(x + 6, y + 12, bars.amount(total), size=12)
            lines = [f"{stage}, {name}: {bars.amount(total)}", *(f"{model}: {bars.amount(part)}" for model, part in parts)]
            sketch.says(names, y, max(x - names, 18.0), _BAR + 2, "\n".join(lines))
            y += _ROW
        y += 6
    keys = list(dict.fromkeys(model for _, plans in bars.stages for _, parts in plans for model, _ in parts))
    columns = 4 if kind == "wide" else 2
    for i, model in enumerate(keys):
        at = (i % columns) * room / columns
        sketch.bar(at, y + 5, 10, 10, colour_of(model))
        sketch.text(at + 15, y + 14, model, room=room / columns - 20, size=12)
        y += 18 if i % columns == columns - 1 or i == len(keys) - 1 else 0
    return sketch.svg(room, y + 6, kind, label, note)


MOST_CHARACTERS = 400_000
"""The most characters of all pictures, so that a page stays below 1 MB; if they are larger, every second budget is left out."""
KINDS = ("wide", "narrow")
_GRAPH = (
    "The stages, loops and branches of the graph with the models that the plan runs in them; a percentage is the share of the "
    "stage's calls. Tools between the stages are not drawn."
)
_TREE = (
    "What runs after what. A percentage is the share of all requests that come there. Ways that go on alike are one "
    "box, and the last box of a way has the answer.{rare}"
)
_BARS = {
    "dollars": ("Dollars by stage", "Of 1,000 requests, tools after the stage included. {rest}"),
    "seconds": (
        "Seconds by stage",
        "Of a request on average at zero load, tools included. Stages side by side overlap. {rest}",
    ),
}
_REST = "Estimated from all rows; all budgets have the same scale."


@dataclass(frozen=True)
class BudgetPart:
    """One kind of picture in the section, drawn for every stop of the slider.

    Attributes:
        name: The name of the kind, such as ``tree``.
        title, caption: The texts above and below the picture.
        shown: The SVG text for each stop, in the slider's order.
    """

    name: str
    title: str
    caption: str
    shown: tuple[str, ...]


def plotted_budgets(slider: BudgetSlider, note: str) -> tuple[BudgetSlider, list[BudgetPart]]:
    """Return (slider, pictures of its stops). While the pictures are too large for the page, every second stop is removed.

    ``note`` is printed inside each picture.
    """
    while True:
        parts = budget_parts(slider, note)
        kept = [i for i in range(len(slider.stops)) if not i % 2 or i == slider.start]
        length = len("".join({shown for one in parts for shown in one.shown}))
        if len(slider.stops) in (len(kept), 2) or length <= MOST_CHARACTERS:
            return slider, parts
        slider = replace(slider, stops=tuple(slider.stops[i] for i in kept), start=kept.index(slider.start))


def budget_parts(slider: BudgetSlider, note: str) -> list[BudgetPart]:
    """Return the section's pictures, each as two SVG elements: a wide one for laptops and print, a narrow one for phones.

    ``note`` is printed inside each picture.
    """

    def part(name: str, title: str, caption: str, plot: Callable[[BudgetStop, str, str], str]) -> BudgetPart:
        label = f"{title}: arrow keys read out its parts"
        shown = tuple("\n".join(plot(stop, kind, label) for kind in KINDS) for stop in slider.stops)
        return BudgetPart(name, title, caption, shown)

    def bars(one: StageBars, kind: str, label: str) -> str:
        return plot_stage_bars(one, slider.colour_of, kind, label, note)

    left = max(stop.tree.left_out for stop in slider.stops)
    rare = f" Rare steps are left out, at most {left:,} at a budget." if left else ""
    parts = [
        part(
            "graph",
            "Your graph with the chosen models",
            _GRAPH,
            lambda stop, kind, label: plot_graph(stop.graph, slider.colour_of, kind, label, note),
        ),
        part(
            "tree",
            "The plan as a tree",
            _TREE.format(rare=rare),
            lambda stop, kind, label: plot_tree(stop.tree, slider.colour_of, kind, label, note),
        ),
    ]
    for name in slider.stops[0].bars:
        title, caption = _BARS[name]
        parts.append(
            part(
                f"stage-{name}",
                title,
                caption.format(rest=f"{slider.beside} {_REST}".strip()),
                lambda stop, kind, label, name=name: bars(stop.bars[name], kind, label),  # type: ignore[misc]
            )
        )
    return parts


def budget_data(slider: BudgetSlider, parts: Sequence[BudgetPart], typeset: Callable[[object], object]) -> dict[str, Any]:
    """Return the data that the page's script needs for the slider, as JSON types.

    ``stops`` has an object for each stop. Its ``texts`` are keyed by the text's name; its ``pictures`` are indices into
    the list ``pictures``, keyed by the name of the part. That list has each different picture once. ``typeset`` is
    applied to every text.
    """
    numbers: dict[str, int] = {}
    stops = []
    for index, stop in enumerate(slider.stops):
        texts = {"budget": stop.budget, "plan": stop.plan}
        texts |= {f"figure-{i}": value for i, (_, value) in enumerate(stop.figures)}
        stops.append(
            {
                "texts": {name: typeset(text) for name, text in texts.items()},
                "pictures": {one.name: numbers.setdefault(one.shown[index], len(numbers)) for one in parts},
            }
        )
    return {"stops": stops, "pictures": list(numbers)}


def budget_table(slider: BudgetSlider) -> Table:
    """Return a table with a row for each stop of the slider; it replaces the slider in print and if scripts do not run."""
    names = [name for name, _ in slider.stops[0].figures]
    rows = tuple(Row(cells=(stop.budget, *(value for _, value in stop.figures)), detail=stop.plan) for stop in slider.stops)
    texts = tuple(i for i, name in enumerate(("budget", *names)) if i == 0 or name == "Judged")
    return Table(title="The plan within each budget", columns=("budget", *names), rows=rows, text_columns=texts, is_folded=True)
