"""Draws a plan as a tree: from left to right if there is room, otherwise indented with one step per line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.reports.budgets import PlanNode, PlanTree
from vinelm.reports.pictures.graph import NARROW, WIDE
from vinelm.reports.pictures.sketch import ColourOf, Sketch, wrapped

LEAST_COLUMN = 168.0
"""A narrower column has no room for a model's name."""
_INDENT, _SPACE, _DEEPEST = 18.0, 10.0, 8


@dataclass(frozen=True, slots=True)
class _Place:
    node: PlanNode
    x: float
    y: float
    width: float
    height: float
    above: _Place | None

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def plot_tree(tree: PlanTree, colour_of: ColourOf, kind: str, label: str, note: str = "") -> str:
    """Return the plan as an SVG element; ``kind`` is ``wide`` or ``narrow``.

    ``label`` describes the picture for screen readers; ``note`` is printed inside.
    """
    columns = _depth(tree.roots)
    room = WIDE if kind == "wide" else NARROW
    is_across = kind == "wide" and columns * LEAST_COLUMN <= room
    layout = _Across(min(room / max(columns, 1), 250.0)) if is_across else _Down(room)
    bottom = layout.place(tree.roots, 0, 0.0, None)
    sketch = Sketch()
    for place in layout.places:
        if place.above is not None:
            layout.connect(sketch, place.above, place)
    for place in layout.places:
        _plot(sketch, place, colour_of)
    return sketch.svg(room, bottom, kind, label, note)


def _depth(nodes: Sequence[PlanNode]) -> int:
    return 1 + max(_depth(node.children) for node in nodes) if nodes else 0


class _Layout:
    """The base class of the tree's two layouts, which compute where the boxes of the steps are placed.

    ``room`` is a width in pixels: in :class:`_Across` that of a column, in :class:`_Down` that of the picture.
    """

    def __init__(self, room: float) -> None:
        self.room = room
        self.places: list[_Place] = []

    def width(self, depth: int) -> float:
        raise NotImplementedError

    def place(self, nodes: Sequence[PlanNode], depth: int, top: float, above: _Place | None) -> float:
        """Place ``nodes`` below each other from the y position ``top`` on, each with its later steps.

        Return the y position below the last node, in pixels. ``depth`` is the number of steps before the nodes. ``above``
        is the place of the step that they follow; None at the start of a plan.
        """
        raise NotImplementedError

    def connect(self, sketch: Sketch, above: _Place, place: _Place) -> None:
        raise NotImplementedError

    def height(self, node: PlanNode, depth: int) -> float:
        return 12.0 + 16.0 * ((1 if node.model is None else 2) + len(_when(node, self.width(depth))))


class _Across(_Layout):
    """A layout of the tree from left to right, with a column of width ``room`` for each call."""

    def width(self, depth: int) -> float:
        return self.room - 28.0

    def place(self, nodes: Sequence[PlanNode], depth: int, top: float, above: _Place | None) -> float:
        for node in nodes:
            height, whole = self.height(node, depth), self._whole(node, depth)
            place = _Place(node, depth * self.room, top + (whole - height) / 2, self.width(depth), height, above)
            self.places.append(place)
            self.place(node.children, depth + 1, top + max(0.0, (whole - self._below(node, depth)) / 2), place)
            top += whole + _SPACE
        return top

    def connect(self, sketch: Sketch, above: _Place, place: _Place) -> None:
        turn = place.x - 14
        points = [(above.x + above.width, above.middle), (turn, above.middle), (turn, place.middle), (place.x, place.middle)]
        sketch.line(points, width=_thick(place))

    def _whole(self, node: PlanNode, depth: int) -> float:
        """Return the height in pixels that a node needs, together with all its later steps."""
        return max(self.height(node, depth), self._below(node, depth))

    def _below(self, node: PlanNode, depth: int) -> float:
        return sum(self._whole(child, depth + 1) for child in node.children) + _SPACE * max(len(node.children) - 1, 0)


class _Down(_Layout):
    """A layout of the tree with one step per line, indented, in a picture of width ``room``."""

    def width(self, depth: int) -> float:
        return self.room - min(depth, _DEEPEST) * _INDENT

    def place(self, nodes: Sequence[PlanNode], depth: int, top: float, above: _Place | None) -> float:
        for node in nodes:
            width, height = self.width(depth), self.height(node, depth)
            place = _Place(node, self.room - width, top, width, height, above)
            self.places.append(place)
            top = self.place(node.children, depth + 1, top + height + 0.8 * _SPACE, place)
        return top

    def connect(self, sketch: Sketch, above: _Place, place: _Place) -> None:
        x = above.x + 7
        sketch.line([(x, above.y + above.height), (x, place.middle), (place.x, place.middle)], width=_thick(place))


def _thick(place: _Place) -> float:
    return 1.0 + 4.0 * place.node.share  # the width shows how many requests go this way


def _when(node: PlanNode, width: float) -> list[str]:
    """Return the condition of a step as at most two lines of text that fit ``width`` pixels; empty if the step has none."""
    return wrapped(f"if {node.when}", width - 14, 12) if node.when else []


def _plot(sketch: Sketch, place: _Place, colour_of: ColourOf) -> None:
    node, x, y, width = place.node, place.x, place.y, place.width
    share = f"{100 * node.share:.0f} %" if node.share >= 0.005 else "< 1 %"
    is_end = node.model is None
    sketch.box(x, y, width, place.height, fill="paper" if is_end else "card", edge="rule" if is_end else "focus")
    at = y + 18
    for line in _when(node, width):
        sketch.text(x + 8, at, line, room=width - 14, size=12, colour="muted")
        at += 16
    if is_end:
        sketch.text(x + 8, at, "answered", room=width - 56, size=12, colour="muted")
    else:
        sketch.text(x + 8, at, node.stage, room=width - 56, size=12, colour="muted")
        sketch.bar(x + 8, at + 7, 9, 9, colour_of(node.model or ""))
        sketch.text(x + 22, at + 16, node.model or "", room=width - 28, is_bold=True)
    sketch.text(x + width - 8, at, share, size=12, anchor="end", colour="muted")
    what = "the request has its answer" if is_end else f"{node.stage}: {node.model}"
    lines = [*([f"if {one}" for one in node.seen[:8]]), what, f"{100 * node.share:.1f} % of all requests"]
    sketch.says(x, y, width, place.height, "\n".join(lines))
