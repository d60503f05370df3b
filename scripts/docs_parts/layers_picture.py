"""The picture of the packages as a drawing: sites that draw Mermaid load it from elsewhere, and ours loads nothing."""

from __future__ import annotations

import re
from collections import defaultdict

WIDTH, HEIGHT, GAP, ROW = 128, 34, 36, 74
NODE = re.compile(r'^\s*(\w+)\["([^"]+)"\]$', re.MULTILINE)
ARROW = re.compile(r"^\s*(\w+) --> (\w+)$", re.MULTILINE)


def layers_picture(text: str) -> str:
    """The drawing of a Mermaid flowchart of packages that import others: each below all that it imports."""
    names = dict(NODE.findall(text))
    imports: dict[str, list[str]] = defaultdict(list)
    for importer, imported in ARROW.findall(text):
        imports[importer].append(imported)
    places = _places(names, imports)
    width = max(x for x, _ in places.values()) + WIDTH + 2
    height = max(y for _, y in places.values()) + HEIGHT + 2
    arrows = [_arrow(places[importer], places[imported]) for importer in names for imported in imports[importer]]
    boxes = [_box(places[name], label) for name, label in names.items()]
    return (
        f'<figure class="drawing" markdown="0"><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="The packages; an arrow means imports">{"".join(arrows + boxes)}</svg></figure>'
    )


def _places(names: dict[str, str], imports: dict[str, list[str]]) -> dict[str, tuple[int, int]]:
    """The corner of each box: the row is the longest chain of imports below it, and rows are centred."""
    level: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in level:
            level[name] = 1 + max((depth(below) for below in imports[name]), default=-1)
        return level[name]

    rows: dict[int, list[str]] = defaultdict(list)
    for name in names:
        rows[depth(name)].append(name)
    widest = max(len(row) for row in rows.values())
    return {
        name: (1 + (widest - len(row)) * (WIDTH + GAP) // 2 + column * (WIDTH + GAP), 1 + number * ROW)
        for number, row in rows.items()
        for column, name in enumerate(row)
    }


def _arrow(importer: tuple[int, int], imported: tuple[int, int]) -> str:
    x, y = importer[0] + WIDTH // 2, importer[1]
    to_x, to_y = imported[0] + WIDTH // 2, imported[1] + HEIGHT
    return (
        f'<path class="line" d="M{x} {y}C{x} {y - 24} {to_x} {to_y + 30} {to_x} {to_y + 6}"/>'
        f'<path class="tip" d="M{to_x - 4} {to_y + 7}L{to_x} {to_y}L{to_x + 4} {to_y + 7}Z"/>'
    )


def _box(place: tuple[int, int], label: str) -> str:
    x, y = place
    return (
        f'<rect class="box" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text class="label" x="{x + WIDTH // 2}" y="{y + HEIGHT // 2 + 5}">{label}</text>'
    )
