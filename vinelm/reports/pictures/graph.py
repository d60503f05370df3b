"""Draws the application's graph with a plan's models: from left to right if there is room, otherwise from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vinelm.reports.budgets import GraphPicture, Parts
from vinelm.reports.pictures.sketch import ColourOf, Sketch
from vinelm.template.steps import END, Branch, Loop, Parallel, Stage, Step

WIDE, NARROW = 880.0, 350.0
MOST_MODELS = 4
"""How many models are written into the box of a stage."""
_BOX, _GAP, _FORK, _LABEL = 188.0, 30.0, 40.0, 18.0


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of the picture. Lines enter it at its top or left edge, ``middle`` pixels from the corner, and leave on
    the opposite side.

    Attributes:
        width, height: The size of the part in pixels.
        middle: The distance, in pixels, from the part's top left corner to the lines that enter and leave it.
        plot: Draws the part with its top left corner at (x, y).
        ends: Whether no request continues after the part.
        has_head: Whether lines to the part end with an arrow.
    """

    width: float
    height: float
    middle: float
    plot: Callable[[float, float], None]
    ends: bool = False
    has_head: bool = True


def plot_graph(graph: GraphPicture, colour_of: ColourOf, kind: str, label: str, note: str = "") -> str:
    """Return the graph as an SVG element; ``kind`` is ``wide`` or ``narrow``.

    ``label`` describes the picture for screen readers; ``note`` is printed inside.
    """
    sketch = Sketch()
    steps = graph.template.steps
    across = _Across(sketch, graph.calls, colour_of).whole(steps)
    if kind == "wide" and across.width <= WIDE:
        across.plot((WIDE - across.width) / 2, 4)
        return sketch.svg(WIDE, across.height + 8, kind, label, note)
    width = 460.0 if kind == "wide" else NARROW
    down = _Down(sketch, graph.calls, colour_of, width).whole(steps)
    room = WIDE if kind == "wide" else NARROW
    down.plot((room - width) / 2, 4)
    return sketch.svg(room, down.height + 8, kind, label, note)


class _Layout:
    """The base class of the graph's two layouts: from left to right, and from top to bottom.

    Args:
        sketch: The picture to draw on.
        calls: For each stage, its models with their expected number of calls per request.
        colour_of: Returns the index of a model's colour.
    """

    def __init__(self, sketch: Sketch, calls: Mapping[str, Parts], colour_of: ColourOf) -> None:
        self.sketch, self.calls, self.colour_of = sketch, calls, colour_of

    def stage_height(self, stage: Stage) -> float:
        rows = min(len(self.calls.get(stage.name, ())) or 1, MOST_MODELS + 1)
        return 30.0 + 18.0 * rows

    def stage(self, stage: Stage, x: float, y: float, width: float) -> None:
        """Draw the box of a stage, with its name, its models, and the share of the stage's calls that each model gets."""
        sketch, parts = self.sketch, sorted(self.calls.get(stage.name, ()), key=lambda part: -part[1])
        height, total = self.stage_height(stage), sum(amount for _, amount in parts)
        sketch.box(x, y, width, height, edge="focus" if parts else "rule")
        sketch.text(x + 10, y + 19, stage.name, room=width - 20, is_bold=True)
        shown = parts if len(parts) <= MOST_MODELS else parts[: MOST_MODELS - 1]
        for row, (model, amount) in enumerate(shown):
            at = y + 37 + 18 * row
            sketch.bar(x + 10, at - 9, 9, 9, self.colour_of(model))
            share = f"{100 * amount / total:.0f} %" if len(parts) > 1 else ""
            sketch.text(x + 24, at, model, room=width - (74 if share else 34))
            if share:
                sketch.text(x + width - 8, at, share, colour="muted", anchor="end", size=12)
        if len(parts) > len(shown):
            sketch.text(x + 24, y + 37 + 18 * len(shown), f"and {len(parts) - len(shown)} more", colour="muted")
        if not parts:
            sketch.text(x + 10, y + 37, "not called by this plan", room=width - 14, colour="muted", size=12)
        words = [f"{model}: {1000 * amount:,.0f} calls per 1,000 requests" for model, amount in parts]
        sketch.says(x, y, width, height, "\n".join([stage.name, *(words or ["not called by this plan"])]))

    def arms(self, step: Branch | Parallel) -> list[tuple[str, Sequence[Step]]]:
        if isinstance(step, Branch):
            return list(step.ways.items())
        return [("side by side" if i == 0 else "", (stage,)) for i, stage in enumerate(step.stages)]


class _Across(_Layout):
    """A layout of the graph from left to right; the branches after a stage are drawn below each other."""

    def whole(self, steps: Sequence[Step]) -> _Block:
        inner = self.series(steps)
        ends = 0 if inner.ends else _GAP

        def plot(x: float, y: float) -> None:
            at = y + inner.middle
            self.sketch.dot(x + 6, at)
            self.sketch.line([(x + 11, at), (x + _GAP, at)], has_arrow=inner.has_head)
            inner.plot(x + _GAP, y)
            if not inner.ends:
                end = x + _GAP + inner.width
                self.sketch.line([(end, at), (end + _GAP - 12, at)], has_arrow=True)
                self.sketch.dot(end + _GAP - 6, at, is_end=True)

        return _Block(inner.width + _GAP + ends, inner.height, inner.middle, plot)

    def series(self, steps: Sequence[Step]) -> _Block:
        blocks = [self.block(step) for step in steps]
        if not blocks:
            return _Block(_GAP, 12, 6, lambda x, y: self.sketch.line([(x, y + 6), (x + _GAP, y + 6)]), has_head=False)
        middle = max(block.middle for block in blocks)
        height = middle + max(block.height - block.middle for block in blocks)

        def plot(x: float, y: float) -> None:
            for i, block in enumerate(blocks):
                block.plot(x, y + middle - block.middle)
                x += block.width
                if i + 1 < len(blocks):
                    self.sketch.line([(x, y + middle), (x + _GAP, y + middle)], has_arrow=blocks[i + 1].has_head)
                x += _GAP

        width = sum(block.width for block in blocks) + _GAP * (len(blocks) - 1)
        return _Block(width, height, middle, plot, blocks[-1].ends, blocks[0].has_head)

    def block(self, step: Step) -> _Block:
        if isinstance(step, Stage):
            height = self.stage_height(step)
            return _Block(_BOX, height, height / 2, lambda x, y: self.stage(step, x, y, _BOX))
        if isinstance(step, Loop):
            return self.loop(step)
        if isinstance(step, (Branch, Parallel)):
            return self.branch(step)
        assert step == END
        return _Block(12, 12, 6, lambda x, y: self.sketch.dot(x + 6, y + 6, is_end=True), ends=True)

    def loop(self, step: Loop) -> _Block:
        inner, top, pad = self.series(step.stages), 30.0, 20.0
        if step.times == 1:
            return inner
        middle, width = inner.middle + top, inner.width + 2 * pad

        def plot(x: float, y: float) -> None:
            at, end = y + middle, x + width
            self.sketch.line([(x, at), (x + pad, at)], has_arrow=inner.has_head)
            self.sketch.line([(end - pad, at), (end, at)])
            inner.plot(x + pad, y + top)
            back = [(end - 10, at), (end - 10, y + 20), (x + 6, y + 20), (x + 6, at)]
            self.sketch.line(back, has_arrow=True)
            self.sketch.text(
                x + width / 2, y + 14, f"up to {step.times} times", room=width, size=12, colour="muted", anchor="middle"
            )

        return _Block(width, inner.height + top, middle, plot, inner.ends, has_head=False)

    def branch(self, step: Branch | Parallel) -> _Block:
        arms = [(label, self.series(steps)) for label, steps in self.arms(step)]
        widest = max(block.width for _, block in arms)
        tops, y0 = [], 0.0
        for _, block in arms:
            tops.append(y0 + _LABEL)
            y0 += _LABEL + block.height + 8
        height, width = y0 - 8, widest + 2 * _FORK
        middle = (tops[0] + arms[0][1].middle + tops[-1] + arms[-1][1].middle) / 2
        ends = all(block.ends for _, block in arms)

        def plot(x: float, y: float) -> None:
            for (label, block), top in zip(arms, tops, strict=True):
                at = y + top + block.middle
                start = x + _FORK
                self.sketch.line([(x, y + middle), (x + 10, y + middle), (x + 10, at), (start, at)], has_arrow=block.has_head)
                block.plot(start, y + top)
                self.sketch.text(start, y + top - 5, label, room=widest, size=12, colour="muted")
                if not block.ends:
                    right = x + width
                    self.sketch.line(
                        [(start + block.width, at), (right - 10, at), (right - 10, y + middle), (right, y + middle)]
                    )

        return _Block(width, height, middle, plot, ends, has_head=False)


class _Down(_Layout):
    """A layout of the graph from top to bottom; branches are drawn below each other, between two vertical lines."""

    def __init__(self, sketch: Sketch, calls: Mapping[str, Parts], colour_of: ColourOf, width: float) -> None:
        super().__init__(sketch, calls, colour_of)
        self.width = width

    def whole(self, steps: Sequence[Step]) -> _Block:
        inner = self.series(steps, self.width)

        def plot(x: float, y: float) -> None:
            at = x + self.width / 2
            self.sketch.dot(at, y + 6)
            self.sketch.line([(at, y + 11), (at, y + 26)], has_arrow=inner.has_head)
            inner.plot(x, y + 26)
            if not inner.ends:
                end = y + 26 + inner.height
                self.sketch.line([(at, end), (at, end + 16)], has_arrow=True)
                self.sketch.dot(at, end + 22, is_end=True)

        return _Block(self.width, inner.height + 26 + (0 if inner.ends else 30), self.width / 2, plot)

    def series(self, steps: Sequence[Step], width: float) -> _Block:
        blocks, gap, middle = [self.block(step, width) for step in steps], 22.0, width / 2
        if not blocks:
            return _Block(
                width, 14, middle, lambda x, y: self.sketch.line([(x + middle, y), (x + middle, y + 14)]), has_head=False
            )

        def plot(x: float, y: float) -> None:
            for i, block in enumerate(blocks):
                block.plot(x, y)
                y += block.height
                if i + 1 < len(blocks):
                    self.sketch.line([(x + middle, y), (x + middle, y + gap)], has_arrow=blocks[i + 1].has_head)
                y += gap

        height = sum(block.height for block in blocks) + gap * (len(blocks) - 1)
        return _Block(width, height, middle, plot, blocks[-1].ends, blocks[0].has_head)

    def block(self, step: Step, width: float) -> _Block:
        if isinstance(step, Stage):
            box = min(width, 230.0)
            return _Block(
                width,
                self.stage_height(step),
                width / 2,
                lambda x, y: self.stage(step, x + (width - box) / 2, y, box),
            )
        if isinstance(step, Loop):
            return self.loop(step, width)
        if isinstance(step, (Branch, Parallel)):
            return self.branch(step, width)
        assert step == END
        return _Block(width, 12, width / 2, lambda x, y: self.sketch.dot(x + width / 2, y + 6, is_end=True), ends=True)

    def loop(self, step: Loop, width: float) -> _Block:
        pad, top = 16.0, 22.0
        if step.times == 1:
            return self.series(step.stages, width)
        inner, middle = self.series(step.stages, width - 2 * pad), width / 2

        def plot(x: float, y: float) -> None:
            at, end, right = x + middle, y + inner.height + top, x + width - 4
            self.sketch.line([(at, y), (at, y + top)], has_arrow=inner.has_head)
            inner.plot(x + pad, y + top)
            self.sketch.line([(at, end), (at, end + 12)])
            back = [(at, end + 8), (right, end + 8), (right, y + 8), (at + 3, y + 8)]
            self.sketch.line(back, has_arrow=True)
            self.sketch.text(at + 12, y + 4, f"up to {step.times} times", room=middle - 16, size=12, colour="muted")

        return _Block(width, inner.height + top + 12, middle, plot, inner.ends, has_head=False)

    def branch(self, step: Branch | Parallel, width: float) -> _Block:
        rail, turn, middle = 16.0, 34.0, width / 2
        arms = [(label, self.series(steps, width - 2 * rail)) for label, steps in self.arms(step)]
        height = sum(turn + block.height + 10 for _, block in arms) + 10
        ends = all(block.ends for _, block in arms)

        def plot(x: float, y: float) -> None:
            at, left, right, top, bottom = x + middle, x + 5, x + width - 5, y, y + height
            for number, (label, block) in enumerate(arms):
                # The first branch is entered, and the last one left, in a straight line; the others along the rails.
                aside = [(at, top + 6), (left, top + 6), (left, y + 14), (at, y + 14)] if number else [(at, y)]
                self.sketch.line([*aside, (at, y + turn)], has_arrow=block.has_head)
                self.sketch.text(left + 8, y + 28, label, room=middle - 24, size=12, colour="muted")
                block.plot(x + rail, y + turn)
                y += turn + block.height
                if not block.ends:
                    is_last = number == len(arms) - 1
                    aside = [] if is_last else [(at, y + 6), (right, y + 6), (right, bottom - 6), (at, bottom - 6)]
                    self.sketch.line([(at, y), *aside, (at, bottom)])
                y += 10

        return _Block(width, height, middle, plot, ends, has_head=False)
