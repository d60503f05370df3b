"""Every relative link of README, CONTRIBUTING and the pages leads somewhere, its anchor included."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PRODUCT = ("vinelm", "controller", "estimator", "profiler", "traces", "workflows")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_lead_somewhere():
    broken = [f"{page.relative_to(ROOT)}: {link}" for page in PAGES for link in broken_links(page)]
    assert not broken, "\n".join(broken)


def test_pages_that_the_code_names_exist():
    sources = [path for part in PRODUCT for path in sorted((ROOT / part).rglob("*.py"))]
    broken = []
    for path in sources:
        for name, anchor in re.findall(r"\bdocs/([\w-]+\.md)(?:#([\w-]+))?", path.read_text(encoding="utf-8")):
            page = ROOT / "docs" / name
            if not page.exists() or (anchor and anchor not in set(anchors(page))):
                broken.append(f"{path.relative_to(ROOT)}: docs/{name}{'#' if anchor else ''}{anchor}")
    assert not broken, "\n".join(broken)


def broken_links(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in LINK.findall(text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        file = page if not target else (page.parent / target).resolve()
        if not file.exists() or (anchor and anchor not in set(anchors(file))):
            yield link
