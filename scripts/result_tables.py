"""Write tables of committed results into the pages: what a page quotes is what `results/*.json` says. --check writes nothing.

A table stands between two comments. The first names the file in results/, the place of its rows, and a place for each column,
in which `*` stands for the row: its key in an object, its number in a list.

    <!-- result: signals.json | rows /tables/exams | method = * | accuracy = /tables/exams/*/accuracy : .1% -->
    <!-- end of result -->

The rows may be picked by their keys, in their order: ``rows /tables 4 0``. A page that should have no such comments is
checked from outside: `OUTSIDE` says what the first table below a heading shows.

One number in a sentence stands between two comments, too:

    <!-- value: signals.json | /seconds : .0f -->12<!-- end of value -->

Places are JSON pointers. What follows the last " : " is a format of Python, or one that ends in "p": ".1p" writes 0.123 as
"12.3", in points. A value that is not there is a dash. A column of several values is a text with places in braces:

    MAE / max = {/tables/*/mae:.2p} / {/tables/*/max_abs:.1p}

A claim stands between two comments that name an interval (value, low, high), and holds only where the interval says so:
"ahead" ("more accurate", "saves") needs a lower end above 0, "behind" an upper end below 0, "same" an interval around 0. With
"*" for the rows it has to hold in every one. On the pages of `CLAIMED` no sentence about VineLM may use such a word elsewhere.

    VineLM is <!-- claim: signals.json | /tables/*/lead/static | ahead -->ahead of<!-- end of claim --> the static plan.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- result: (?P<spec>[^\n]*?) -->\n)(?P<table>.*?)(<!-- end of result -->)", re.DOTALL)
VALUE = re.compile(r"(<!-- value: (?P<name>[^\n|]*?) \| (?P<place>[^\n]*?) : (?P<form>\S+) -->)[^\n<]*(<!-- end of value -->)")
PLACE = re.compile(r"\{(?P<place>/[^{}:]*)(?::(?P<form>[^{}]*))?\}")
NOTHING = "-"
CLAIM = re.compile(
    r"<!-- claim: (?P<name>[^\n|]*?) \| (?P<place>[^\n|]*?) \| (?P<verb>[^\n|]*?) -->(?P<text>[^<]*)<!-- end of claim -->",
    re.DOTALL,
)
CLAIMED = ("README.md", "docs/results.md", "docs/comparison.md", "docs/measurements.md", "docs/rivals.md")
"""Pages whose claims are held against intervals."""
OUTSIDE = {
    "README.md": {
        "## Does it pay?": "signals.json | rows /tables 4 0 3 5 6 | recorded answers of = /tables/*/title"
        " | points over the best fixed plan = /tables/*/over_static | over the best rival = /tables/*/over_best"
        " | fewer dollars than the best single model, as accurate = /tables/*/saved_text/best_single"
    }
}
"""By page and heading, the table below it."""
WORDS = {
    "ahead": re.compile(r"\bahead\b|\bmore accurate\b|\bmore often right\b|\bcheaper\b|\bsaves?\b|\bsaved\b"),
    "behind": re.compile(r"\bbehind\b|\bless accurate\b|\bahead of VineLM\b|\bmore accurate than VineLM\b"),
    "same": re.compile(r"\bsame\b|\bas accurate\b|\bno more than chance\b|\bequal\b"),
}
"""What a claim of each kind says."""
PEERS = re.compile(r"<!-- \w+: who is ahead -->.*?<!-- end -->", re.DOTALL)
"""Sentences that tests/scripts/test_bench_peers.py holds against all intervals of results/peers.json."""
_TOLD = re.compile(r"\bahead of\b|\bis ahead\b|\bmore accurate\b|\bas accurate\b|\bsaves\b|\bbehind\b|\bsame accuracy\b")


class ResultTableError(Exception):
    """A page asks for something that the results do not have."""


@dataclass(frozen=True)
class Column:
    """A column: its title, the place of its values ("*" alone: the row itself), and a format."""

    title: str
    place: str
    form: str = ""

    @classmethod
    def parse(cls, text: str) -> Column:
        """Read "title = place : format"; the format may be left out."""
        title, equals, rest = text.partition(" = ")
        if not equals:
            raise ResultTableError(f"{text!r}: a column is written as title = place : format")
        if PLACE.search(rest):
            return cls(title.strip(), rest.strip())
        place, _, form = rest.rpartition(" : ") if " : " in rest else (rest, "", "")
        return cls(title.strip(), place.strip(), form.strip())

    def cell(self, found: Any, key: str) -> str:
        """The formatted value in the row of that key."""
        if self.place == "*":
            return key
        if not PLACE.search(self.place):
            return shown(at(found, self.place, key), self.form)
        values = [at(found, each["place"], key) for each in PLACE.finditer(self.place)]
        if all(value is None for value in values):
            return NOTHING
        return PLACE.sub(lambda each: shown(at(found, each["place"], key), each["form"] or ""), self.place)


def shown(value: Any, form: str) -> str:
    """The value in a format of Python, in points where that ends in "p"; a dash for None, all values of a list with commas."""
    if value is None:
        return NOTHING
    if isinstance(value, list):
        return ", ".join(shown(one, form) for one in value)
    return format(100 * value, form[:-1] + "f") if form.endswith("p") else format(value, form)


def at(found: Any, place: str, key: str = "") -> Any:
    """The value at a JSON pointer, with "*" for a key; None if it is not there."""
    for part in place.split("/")[1:]:
        name = key if part == "*" else part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def table(spec: str, read: Callable[[str], Any]) -> str:
    """The Markdown table that a comment asks for; ``read`` returns the results of a file."""
    name, rows, *columns = (part.strip() for part in spec.split(" | "))
    if not rows.startswith("rows /") or not columns:
        raise ResultTableError(f"{spec!r}: say the file, `rows` with a place, and the columns")
    found = read(name)
    place, *picked = rows.removeprefix("rows ").split(" ") if re.search(r"( \d+)+$", rows) else [rows.removeprefix("rows ")]
    kept = at(found, place)
    if not isinstance(kept, dict | list) or not kept:
        raise ResultTableError(f"{name} has no {rows}")
    made = [Column.parse(text) for text in columns]
    keys = picked or (list(kept) if isinstance(kept, dict) else [str(i) for i in range(len(kept))])
    lines = [[column.title for column in made], ["---"] * len(made)]
    lines += [[column.cell(found, key) for column in made] for key in keys]
    for i, column in enumerate(made):
        if column.place != "*" and all(line[i] == NOTHING for line in lines[2:]):
            raise ResultTableError(f"{name} has nothing for the column {column.title!r}")
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fresh(page: str, read: Callable[[str], Any], outside: Mapping[str, str] = MappingProxyType({})) -> str:
    """The page with every table and number as the results have it; ``outside``: see :data:`OUTSIDE`."""
    for heading, spec in outside.items():
        found = re.search(rf"^{re.escape(heading)}\n[^#|]*?^((?:\|[^\n]*\n)+)", page, re.MULTILINE)
        if found is None:
            raise ResultTableError(f"no table below {heading!r}")
        page = page[: found.start(1)] + table(spec, read) + page[found.end(1) :]

    def value(found: re.Match[str]) -> str:
        number = at(read(found["name"]), found["place"])
        if number is None:
            raise ResultTableError(f"{found['name']} has nothing at {found['place']}")
        return found[1] + shown(number, found["form"]) + found[5]

    return VALUE.sub(value, BLOCK.sub(lambda block: block[1] + table(block["spec"], read) + block[4], page))


def claims(page: str, read: Callable[[str], Any]) -> list[str]:
    """What is wrong with the claims of a page, one line each: an interval that says something else, or a word that does."""
    wrong = []
    for found in CLAIM.finditer(page):
        said = " ".join(found["text"].split())
        if found["verb"] not in WORDS or not WORDS[found["verb"]].search(said):
            wrong.append(f"{said!r} is no claim of the kind {found['verb']!r}: kinds are {', '.join(WORDS)}")
            continue
        intervals = rows_at(read(found["name"]), found["place"])
        if not intervals or not all(isinstance(one, dict) and {"low", "high"} <= one.keys() for one in intervals):
            raise ResultTableError(f"{found['name']} has no interval at {found['place']}")
        wrong += [
            f"{said!r}: {found['name']} {found['place']} is {shown(one.get('value'), '.3g')} [{shown(one['low'], '.3g')}, "
            f"{shown(one['high'], '.3g')}]"
            for one in intervals
            if not holds(found["verb"], one["low"], one["high"])
        ]  # fmt: skip
    return wrong


def holds(verb: str, low: float | None, high: float | None) -> bool:
    """Whether an interval says "ahead", "behind" or "same"; an end that is not known says nothing."""
    if verb == "ahead":
        return low is not None and low > 0
    if verb == "behind":
        return high is not None and high < 0
    return low is not None and high is not None and low <= 0 <= high


def rows_at(found: Any, place: str) -> list[Any]:
    """The values at a pointer, one for each row that its "*" stands for."""
    head, star, tail = place.partition("/*")
    if not star:
        return [at(found, place)]
    rows = at(found, head)
    keys = list(rows) if isinstance(rows, dict) else [str(i) for i in range(len(rows or ()))]
    return [at(found, f"{head}/*{tail}", key) for key in keys]


def unheld(page: str) -> list[str]:
    """Sentences about VineLM that claim something outside of a claim; code, tables and what is quoted do not count."""
    text = CLAIM.sub(" ", PEERS.sub(" ", BLOCK.sub(" ", page)))
    text = re.sub(r"```.*?```|^\|.*?$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)", " ", text, flags=re.DOTALL | re.MULTILINE)
    sentences = re.split(r"(?<=[.:;!?])\s+|\n\s*\n|\n(?=- )", text)
    return [
        " ".join(one.removeprefix("- ").split()) for one in map(str.strip, sentences) if "VineLM" in one and _TOLD.search(one)
    ]


def pages(root: Path) -> Iterator[Path]:
    """README and the pages of docs/ that have such a table, and those whose claims are held."""
    for path in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if BLOCK.search(text) or VALUE.search(text) or (text and path.relative_to(root).as_posix() in CLAIMED):
            yield path


def unquoted(root: Path) -> list[str]:
    """The names of the files of results/ that no page takes a number from, nor names as `results/NAME`."""
    texts = [
        path.read_text(encoding="utf-8") for path in (root / "README.md", *(root / "docs").rglob("*.md")) if path.is_file()
    ]
    quoted = {block["spec"].split(" | ")[0].strip() for text in texts for block in BLOCK.finditer(text)}
    quoted |= {value["name"].strip() for text in texts for value in VALUE.finditer(text)}
    names = sorted(path.name for path in (root / "results").iterdir())
    return [name for name in names if name not in quoted and not any(f"results/{name}" in text for text in texts)]


def reader(root: Path) -> Callable[[str], Any]:
    """What reads a file of results/ by name."""

    def read(name: str) -> Any:
        path = root / "results" / name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ResultTableError(f"results/{name} cannot be read: {error}") from error
        lacking = [key for key in ("command", "commit") if not found.get(key)]
        if lacking:
            raise ResultTableError(f"results/{name} does not say its {lacking[0]}")
        return found

    return read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a page differs from the results")
    is_check = parser.parse_args().check
    stale, wrong = [], []
    try:
        for path in pages(ROOT):
            page = path.read_text(encoding="utf-8")
            name = path.relative_to(ROOT).as_posix()
            made = fresh(page, reader(ROOT), OUTSIDE.get(name, {}))
            wrong += [f"{name}: {line}" for line in claims(made, reader(ROOT))]
            wrong += [f"{name}: a claim without an interval: {line}" for line in (unheld(made) if name in CLAIMED else [])]
            if made != page:
                stale.append(name)
                if not is_check:
                    path.write_text(made, encoding="utf-8")
    except ResultTableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in stale:
        print(f"{name}: {'differs from the results' if is_check else 'written'}")
    for line in wrong:
        print(line)
    unused = unquoted(ROOT)
    for name in unused:
        print(f"results/{name}: no page names it")
    return 1 if wrong or unused or (stale and is_check) else 0


if __name__ == "__main__":
    sys.exit(main())
