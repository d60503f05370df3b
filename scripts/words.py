"""Count the words of the documentation, its long sentences, and the words that a reader of English stumbles over.

    python scripts/words.py            print the figures; exit with 1 if one is above its limit in tests/docs/words.json
    python scripts/words.py --lower    write what is lower by now as the new limit

Limits only come down. `words` is the sum of the pages in the menu of the site, as `wc -w` counts it without comments. `mean`
has the pages whose sentences have more than 18 words on average, `long` those with sentences above 35 words; a page that is not
named has none.
`listed` counts WORDS in these pages and README, `listed_in_code` in comments, docstrings and texts of the product.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from readme_length import Length, count

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "tests" / "docs" / "words.json"
PRODUCT = ("vinelm", "controller", "estimator", "profiler", "traces", "workflows")
MEAN, LONGEST = 18.0, 35
READ_WHILE_WORKING = ("Tutorials", "How-to")
"""Sections whose sentences are counted. Evidence and mathematics may be denser."""
WORDS = {
    "arm": r"arms?",
    "dear": r"dear(?:er|est)?",
    "anew": "anew",
    "of its own": r"of (?:its|their|one's) own",
    "so many": r"so (?:many|much)",
    "is no": "is no",
    "goes on": r"(?:go|goes|going|went) on",
    "of yours": "of yours",
    "in their place": r"in (?:their|its) place",
    "nobody": "nobody",
    "beside": "beside",
}
"""A name for each of them, and what it looks like in a text."""


def menu(section: str | None = None) -> list[Path]:
    """The pages of the site's menu that lie in `docs/`, or those of one section."""

    def pages(nav: Any) -> Iterator[str]:
        for entry in nav:
            for target in entry.values() if isinstance(entry, dict) else [entry]:
                yield from pages(target) if isinstance(target, list) else [target]

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    wanted = [entry for entry in site["nav"] if section in (None, *entry)]
    found = (ROOT / "docs" / name for name in pages(wanted) if "decisions" not in name)
    return [path for path in found if path.suffix == ".md" and path.is_file()]


def listed(texts: list[str]) -> dict[str, int]:
    """How often each of WORDS stands in the texts."""
    whole = "\n".join(" ".join(text.split()) for text in texts)
    return {name: len(re.findall(rf"\b{word}\b", whole, re.IGNORECASE)) for name, word in WORDS.items()}


def prose(page: str) -> str:
    """A page without its blocks of code, comments and inline code."""
    return re.sub(r"^```.*?^```$|<!--.*?-->|`[^`\n]*`", " ", page, flags=re.DOTALL | re.MULTILINE)


def said(source: str) -> Iterator[str]:
    """What a module says to people: its comments, and its texts with a space in them, docstrings among these."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def figures() -> dict[str, Any]:
    """All figures, in the form of the limits."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in menu()}
    read = [ROOT / "README.md", *(path for section in READ_WHILE_WORKING for path in menu(section))]
    lengths = {path.name: Length.of(path.read_text(encoding="utf-8")) for path in read}
    sources = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    return {
        "words": sum(len(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split()) for text in texts.values()),
        "mean": {name: round(one.mean, 1) for name, one in lengths.items() if one.mean > MEAN},
        "long": {name: n for name, one in lengths.items() if (n := sum(count(s) > LONGEST for s in one.sentences))},
        "listed": listed([prose(text) for text in (*texts.values(), read[0].read_text(encoding="utf-8"))]),
        "listed_in_code": listed([text for path in sources for text in said(path.read_text(encoding="utf-8"))]),
    }


def above(found: Any, limit: Any, place: str = "") -> Iterator[str]:
    """Each figure above its limit, one line each; a page without a limit may have none."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from above(value, limit.get(name, 0), f"{place}{' ' if place else ''}{name}")
    elif found > limit:
        yield f"{place}: {found}, more than {limit}"


def lower(found: Any, limit: Any) -> Any:
    """The smaller of each figure and its limit; a page that has none any more is not named."""
    if isinstance(limit, dict):
        kept = {name: value for name, value in limit.items() if found.get(name) or isinstance(value, dict)}
        return {name: lower(found.get(name, {}), value) for name, value in kept.items()}
    return min(found, limit)


def main() -> int:
    """Print the figures, and compare them with the limits or lower these."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="write lower figures as the limits")
    asked = parser.parse_args()
    found, limits = figures(), json.loads(LIMITS.read_text(encoding="utf-8"))
    print(json.dumps(found, indent=1))
    if asked.lower:
        LIMITS.write_text(json.dumps(lower(found, limits), indent=1) + "\n", encoding="utf-8")
    wrong = list(above(found, limits))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
