"""Check the built site: every internal link and anchor leads somewhere, and no page asks for anything from outside.

    python scripts/docs_parts/check_site.py build/site

MkDocs checks the links that are written in pages. This checks what a browser gets: links of the theme, of generated pages and
of drawings, too. What a page *loads* (scripts, styles, pictures, fonts) must lie in the site; a link to elsewhere is fine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src"), ("link", "href"), ("use", "href")}
NOT_LOADED = {"canonical", "next", "prev"}
OUTSIDE = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"]?(?:https?:)?//")


@dataclass
class Seen(HTMLParser):
    """What one page has: anchors, links, and addresses that a browser loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of a tag."""
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        for name, value in attrs:
            if value and tag == "a" and name == "href":
                self.links.append(value)
            elif value and (tag, name) in LOADED and given.get("rel") not in NOT_LOADED:
                self.loaded.append(value)


@cache
def seen(path: Path) -> Seen:
    """What the page at a path has."""
    page = Seen()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def problems(site: Path) -> Iterator[str]:
    """One line for each link that leads nowhere, and for each thing that is loaded from outside."""
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # its links begin at the site's root, which a folder on a disk does not have
            continue
        page = seen(path)
        for address in page.loaded:
            yield from broken(site, path, address, is_loaded=True)
        for address in page.links:
            yield from broken(site, path, address)
    for path in sorted(site.rglob("*.css")):
        if OUTSIDE.search(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: loads something from outside"


def broken(site: Path, page: Path, address: str, *, is_loaded: bool = False) -> Iterator[str]:
    """What is wrong with one address on a page."""
    where = page.relative_to(site)
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        if is_loaded and parts.scheme != "data":
            yield f"{where}: loads {address} from outside"
        return
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        yield f"{where}: {address} leads nowhere"
    elif parts.fragment and target.suffix == ".html" and not is_anchor(target, unquote(parts.fragment)):
        yield f"{where}: {address}: the page has no such anchor"


def is_anchor(path: Path, fragment: str) -> bool:
    """Whether a page has an anchor; the theme's own ones are made by its script."""
    return fragment.startswith("__") or fragment in seen(path).anchors


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    site = Path(sys.argv[1]).resolve()
    pages = sum(1 for _ in site.rglob("*.html"))
    found = list(problems(site))
    print(*found, sep="\n" if found else "")
    print(f"{pages} pages in {sys.argv[1]}: {len(found) or 'no'} broken link{'s' * (len(found) != 1)}")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
