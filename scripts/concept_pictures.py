"""Draw the pictures of docs/concepts.md and of README.

Those of the concepts are the example's graph, its trie, a plan in it, and the same plan after the first answer. Their figures
are those of docs/your-own-app.md: the same app is profiled and estimated with the same simulated models. That of README shows
what `vinelm demo` prints.
--check draws nothing and says whether the files are those of today.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copy

import vinelm
from vinelm.demo import RecordedResult, run_recorded
from vinelm.trie.annotated_trie import AnnotatedTrie

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE, PICTURES = ROOT / "docs" / "examples", ROOT / "docs" / "pictures"
STYLE = """<style>
svg { --box: #e6f2f1; --edge: #00796b; --ink: #1f2328; --faint: #8b949e; --chosen: #b2dfdb; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  svg { --box: #12302d; --edge: #4db6ac; --ink: #e6edf3; --faint: #7d8590; --chosen: #00574c; --paper: #0d1117; }
}
.box { fill: var(--box); stroke: var(--edge); }
.tool { fill: none; stroke: var(--faint); }
.chosen { fill: var(--chosen); stroke: var(--edge); stroke-width: 2.5; }
.out { fill: none; stroke: var(--faint); stroke-dasharray: 4 4; }
.line { fill: none; stroke: var(--faint); stroke-width: 1.4; }
.taken { fill: none; stroke: var(--edge); stroke-width: 2.8; }
.tip { fill: var(--faint); }
text { fill: var(--ink); font: 13px system-ui, sans-serif; text-anchor: middle; }
.label { font-weight: 600; }
.faint { fill: var(--faint); }
.start { text-anchor: start; }
</style>
"""
BOUND_USD = 0.001
WIDTH, HEIGHT = 88, 60
ROOM = 400
"""Width of a picture of the concepts: its small print is read on a phone."""


@dataclass(frozen=True)
class Box:
    """A box with its centre: a title and lines of small print."""

    x: int
    y: int
    title: str
    lines: tuple[str, ...] = ()
    look: str = "box"
    width: int = WIDTH
    height: int = HEIGHT

    def drawn(self) -> str:
        """The box as SVG."""
        faint = " faint" if self.look == "out" else ""
        top = self.y + 5 - 9 * len(self.lines)
        texts = [f'<text class="label{faint}" x="{self.x}" y="{top}">{self.title}</text>']
        texts += [
            f'<text class="{faint.strip() or "small"}" x="{self.x}" y="{top + 18 * n}">{line}</text>'
            for n, line in enumerate(self.lines, 1)
        ]
        corner = f'x="{self.x - self.width // 2}" y="{self.y - self.height // 2}"'
        return "\n".join([f'<rect class="{self.look}" {corner} width="{self.width}" height="{self.height}" rx="8"/>', *texts])


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    """An SVG file: its own colours for light and dark, and a title for those who cannot see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n<title>{title}</title>\n'
    return head + STYLE + "\n".join(parts) + "\n</svg>\n"


def line(start: tuple[int, int], end: tuple[int, int], look: str = "line") -> str:
    """A straight line."""
    return f'<path class="{look}" d="M{start[0]} {start[1]}L{end[0]} {end[1]}"/>'


def arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """A horizontal arrow."""
    x, y = end
    turn = 8 if start[0] < x else -8
    return line(start, (x - turn, y)) + f'\n<path class="tip" d="M{x - turn} {y - 5}L{x} {y}L{x - turn} {y + 5}Z"/>'


def text(x: int, y: int, words: str, look: str = "faint") -> str:
    """A line of text."""
    return f'<text class="{look}" x="{x}" y="{y}">{words}</text>'


def graph() -> str:
    """The graph of the example: two stages, a tool, and an end."""
    solve, check = Box(60, 76, "solve", ("LLM stage",)), Box(200, 76, "check", ("a tool",), "tool")
    finish, fix = Box(344, 76, "finish", ("the answer",), "tool"), Box(200, 186, "fix", ("LLM stage",))
    parts = [box.drawn() for box in (solve, check, finish, fix)]
    parts += [text(60, 18, "question"), line((60, 24), (60, 38)), '<path class="tip" d="M55 38L60 46L65 38Z"/>']
    parts += [arrow((104, 76), (156, 76)), arrow((244, 76), (300, 76))]
    parts += [text(272, 38, "a number"), text(308, 150, "not a number,"), text(308, 168, "at most twice")]
    parts.append('<path class="line" d="M233 106C264 136 264 166 249 182"/>\n<path class="tip" d="M251 175L244 186L253 187Z"/>')
    parts.append('<path class="line" d="M156 186C127 176 133 132 163 111"/>\n<path class="tip" d="M160 106L167 106L164 116Z"/>')
    return picture(ROOM, 226, "The graph of the example: solve, check, and fix until the answer is a number", parts)


PLACES = {(): (200, 28), ("small",): (104, 116), ("large",): (296, 116)}
PLACES |= {
    (first, then): (PLACES[(first,)][0] + (-47 if then == "small" else 47), 218)
    for first in ("small", "large")
    for then in ("small", "large")
}


def trie_boxes(found: AnnotatedTrie) -> dict[tuple[str, ...], Box]:
    """A box for each node of the first two invocations, with its estimated accuracy and dollars."""
    boxes = {(): Box(*PLACES[()], "a request", (), "tool", height=32)}
    for prefix, (x, y) in PLACES.items():
        if prefix:
            node = found.trie.node(prefix)
            figures = (f"{found.accuracy[node]:.1%} right", f"${1000 * found.path_cost_usd[node]:.2f}")
            boxes[prefix] = Box(x, y, prefix[-1], figures)
    return boxes


def tree(boxes: dict[tuple[str, ...], Box], taken: tuple[str, ...] = ()) -> list[str]:
    """The boxes and the lines between them; those along the taken prefix are thick."""
    lines = []
    for prefix, box in boxes.items():
        if prefix:
            above = boxes[prefix[:-1]]
            ends = (above.x, above.y + above.height // 2), (box.x, box.y - box.height // 2)
            lines.append(line(*ends, "taken" if taken[: len(prefix)] == prefix else "line"))
    return [*lines, *(box.drawn() for box in boxes.values())]


SIDE = [text(8, 120, "solve", "faint start"), text(8, 176, "fix", "faint start")]


def trie(found: AnnotatedTrie) -> str:
    """The first two levels of the trie."""
    title = "The trie: a node for each sequence of models, with its estimated accuracy and cost"
    return picture(ROOM, 258, title, tree(trie_boxes(found)) + SIDE)


def plan(found: AnnotatedTrie) -> str:
    """The plan for the highest accuracy under a bound; nodes beyond the bound are dashed."""
    boxes = trie_boxes(found)
    decision = vinelm.plan(found, maximize="accuracy", max_cost_usd=BOUND_USD, mix=False)
    chosen = tuple(found.trie.prefix(decision.target))
    for prefix, box in boxes.items():
        if prefix and prefix == chosen[: len(prefix)]:
            boxes[prefix] = replace(box, look="chosen")
        elif prefix and found.path_cost_usd[found.trie.node(prefix)] > BOUND_USD:
            boxes[prefix] = replace(box, look="out")
    title = "A plan: the most accurate path among those that cost at most $1.00 per 1,000 requests"
    return picture(ROOM, 258, title, tree(boxes, chosen) + SIDE)


def rerooted(found: AnnotatedTrie) -> str:
    """What is left of the trie once the small model has answered and the check has failed."""
    boxes = trie_boxes(found)
    for prefix, box in boxes.items():
        if prefix and prefix[0] == "large":
            boxes[prefix] = replace(box, look="out", lines=())
        elif len(prefix) == 2:
            node = found.trie.node(prefix)
            figures = (f"{abs(found.success[node]):.0%} right now", f"+ ${1000 * found.cost_usd[node]:.2f}")
            boxes[prefix] = replace(box, lines=figures, look="chosen" if prefix[1] == "large" else "box")
    boxes[("small",)] = replace(boxes[("small",)], lines=("has answered:", "check failed"), look="tool")
    title = "Planning again: only the part below the request's own position is left"
    return picture(ROOM, 258, title, tree(boxes, ("small", "large")) + SIDE)


LARGE = """<style>
text { font-size: 25px; }
.end { text-anchor: end; }
.dot { fill: var(--faint); }
.diamond { fill: var(--edge); }
.grid { stroke: var(--faint); stroke-opacity: 0.3; }
</style>"""
"""Letters that are read on a phone, too."""
COSTS, ACCURACIES = (0.3, 40.0), (0.55, 0.80)
"""What the axes of the demo's picture span: dollars per 1,000 requests, and a fraction."""


def demo(found: RecordedResult) -> str:
    """Accuracy against cost: a dot for each model on every call, a diamond for VineLM."""

    def place(usd: float, accuracy: float) -> tuple[int, int]:
        share = math.log(usd / COSTS[0]) / math.log(COSTS[1] / COSTS[0])
        return round(90 + 590 * share), round(400 - 340 * (accuracy - ACCURACIES[0]) / (ACCURACIES[1] - ACCURACIES[0]))

    parts = [LARGE, text(8, 32, "correct", "faint start"), text(375, 478, "cost of 1,000 requests, dollars (log scale)")]
    for percent in range(55, 81, 5):
        y = place(1.0, percent / 100)[1]
        parts += [line((90, y), (690, y), "grid"), text(80, y + 8, f"{percent} %", "faint end")]
    parts += [text(place(usd, 0.55)[0], 436, f"${usd:g}") for usd in (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)]
    previous = 0
    for one in sorted((*found.models, found.vinelm), key=lambda one: one.accuracy):
        x, y = place(1000 * one.usd, one.accuracy)
        if one is found.vinelm:
            parts.append(f'<path class="diamond" d="M{x} {y - 15}L{x + 15} {y}L{x} {y + 15}L{x - 15} {y}Z"/>')
        else:
            parts.append(f'<circle class="dot" cx="{x}" cy="{y}" r="9"/>')
        above = min(y + 8, previous - 28) if previous else y + 8  # one name does not cover another
        previous = above
        named = f"{one.name}, {100 * one.accuracy:.1f} %"
        where = ("end", x - 18) if x > 400 else ("start", x + 20)
        parts.append(text(where[1], above, named, f"{'label ' if one is found.vinelm else ''}{where[0]}"))
    title = f"Accuracy against cost on {len(found.groups)} {found.subject.noun}: each model on every call, and VineLM"
    return picture(700, 490, title, parts)


def estimated(folder: Path) -> AnnotatedTrie:
    """The trie of the example, from the profile that docs/your-own-app.md runs."""
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        copy(EXAMPLE / name, folder)
    sys.path.insert(0, str(folder))
    vinelm.profile("my_app:workflow", folder / "models.toml", folder / "my-app.db", coverage=0.3)
    return vinelm.estimate(folder / "my-app.db")


def drawn() -> dict[str, str]:
    """Each picture by its file name."""
    with tempfile.TemporaryDirectory() as folder:
        found = estimated(Path(folder))
        shown = demo(run_recorded("code", Path(folder), seed=0, advance=lambda *_: None))
    return {
        "demo.svg": shown,
        "graph.svg": graph(),
        "trie.svg": trie(found),
        "plan.svg": plan(found),
        "rerooted.svg": rerooted(found),
    }


def main() -> int:
    """Write the pictures, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a picture is stale")
    check = parser.parse_args().check
    pictures = drawn()
    if not check:
        for name, made in pictures.items():
            (PICTURES / name).write_text(made, encoding="utf-8")
        return 0
    stale = [name for name, made in pictures.items() if (PICTURES / name).read_text(encoding="utf-8") != made]
    print(f"stale: {', '.join(stale)}: run scripts/concept_pictures.py" if stale else "the pictures are those of today")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
