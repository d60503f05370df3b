"""A plan as a tree: from left to right where there is room, else one step below the other, indented."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.reports.budgets import PlanNode, PlanTree
from vinelm.reports.drawing.graph import NARROW, WIDE
from vinelm.reports.drawing.sketch import ColourOf, Sketch

LEAST_COLUMN = 168.0
"""A column that is narrower has no room for the name of a model."""
_INDENT, _SPACE = 18.0, 10.0


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


def draw_tree(tree: PlanTree, colour_of: ColourOf, kind: str, label: str, note: str = "") -> str:
    """Return the plan as an SVG element of this kind, ``wide`` or ``narrow``."""
    columns = _depth(tree.roots)
    room = WIDE if kind == "wide" else NARROW
    is_across = kind == "wide" and columns * LEAST_COLUMN <= room
    places: list[_Place] = []
    if is_across:
        bottom = _across(tree.roots, 0, 0.0, min(room / columns, 250.0), None, places)
    else:
        bottom = _down(tree.roots, 0, 0.0, room, None, places)
    sketch = Sketch()
    for place in places:
        if place.above is not None:
            _connect(sketch, place.above, place, is_across=is_across)
    for place in places:
        _draw(sketch, place, colour_of)
    return sketch.svg(room, bottom, kind, label, note)


def _depth(nodes: Sequence[PlanNode]) -> int:
    return 1 + max(_depth(node.children) for node in nodes) if nodes else 0


def _height(node: PlanNode) -> float:
    lines = (1 if node.model is None else 2) + bool(node.when)
    return 12.0 + 16.0 * lines


def _across(
    nodes: Sequence[PlanNode], depth: int, top: float, column: float, above: _Place | None, places: list[_Place]
) -> float:
    """Place the nodes below each other and their steps to the right of them; return where the next one may begin."""
    for node in nodes:
        height, number = _height(node), len(places)
        below = max(_height_of(node), height)
        place = _Place(node, depth * column, top + (below - height) / 2, column - 28, height, above)
        places.insert(number, place)
        _across(node.children, depth + 1, top + max(0.0, (below - _children(node)) / 2), column, place, places)
        top += below + _SPACE
    return top


def _children(node: PlanNode) -> float:
    return sum(_height_of(child) for child in node.children) + _SPACE * max(len(node.children) - 1, 0)


def _height_of(node: PlanNode) -> float:
    """Height of a node with all its steps."""
    return max(_height(node), _children(node))


def _down(nodes: Sequence[PlanNode], depth: int, top: float, room: float, above: _Place | None, places: list[_Place]) -> float:
    for node in nodes:
        x, height = min(depth, 8) * _INDENT, _height(node)
        place = _Place(node, x, top, room - x, height, above)
        places.append(place)
        top = _down(node.children, depth + 1, top + height + _SPACE * 0.8, room, place, places)
    return top


def _connect(sketch: Sketch, above: _Place, place: _Place, *, is_across: bool) -> None:
    width = 1.0 + 4.0 * place.node.share  # how many requests go this way
    if is_across:
        start, turn = above.x + above.width, place.x - 14
        sketch.line([(start, above.middle), (turn, above.middle), (turn, place.middle), (place.x, place.middle)], width=width)
    else:
        sketch.line([(above.x + 7, above.y + above.height), (above.x + 7, place.middle), (place.x, place.middle)], width=width)


def _draw(sketch: Sketch, place: _Place, colour_of: ColourOf) -> None:
    node, x, y, width = place.node, place.x, place.y, place.width
    share = f"{100 * node.share:.0f} %" if node.share >= 0.005 else "< 1 %"
    is_end = node.model is None
    sketch.box(x, y, width, place.height, fill="paper" if is_end else "card", edge="rule" if is_end else "focus")
    at = y + 18
    if node.when:
        sketch.text(x + 8, at, f"if {node.when}", room=width - 14, size=12, colour="muted")
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
