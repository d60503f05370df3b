"""The documentation site: every page is in its navigation, every public name in its reference. `make docs` builds it."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
MADE = {"security.md", "contributing.md", "changelog.md"}


def entries(nav):
    for entry in nav:
        for target in entry.values() if isinstance(entry, dict) else [entry]:
            yield from entries(target) if isinstance(target, list) else [target]


def test_every_page_is_in_the_menu_or_is_for_those_who_change_vinelm():
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | MADE | {"decisions/*", "notebooks/*"}
    menu, outside = set(entries(SITE["nav"])), {line.strip("/") for line in SITE["not_in_nav"].split()}
    assert not menu & outside
    assert menu | outside == pages, "name each page under `nav` or `not_in_nav` of mkdocs.yml"


def test_every_public_name_is_in_the_reference():
    stub = ast.parse((ROOT / "vinelm" / "__init__.pyi").read_text(encoding="utf-8"))
    public = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: vinelm\.(\w+)$", page, re.MULTILINE)) == sorted(public)


def test_the_theme_loads_nothing_from_elsewhere():
    assert SITE["theme"]["font"] is False
    assert "offline" in SITE["plugins"]
    for file in SITE["extra_css"] + SITE["extra"]["polyfills"]:
        assert (ROOT / "docs" / file).is_file()


@pytest.mark.parametrize("name", ["my_app.py", "questions.jsonl", "models.toml"])
def test_the_tutorial_links_to_its_files_which_puts_them_on_the_site(name):
    assert (ROOT / "docs" / "examples" / name).is_file()
    assert f"(examples/{name})" in (ROOT / "docs" / "your-own-app.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("picture", ["graph", "trie", "plan", "rerooted"])
def test_the_pictures_are_on_the_page(picture):
    assert f"(pictures/{picture}.svg)" in (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")


def test_the_figures_in_the_text_are_those_of_the_pictures():
    text = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    drawn = (ROOT / "docs" / "pictures" / "trie.svg").read_text(encoding="utf-8")
    rounded = {f"{float(share):.0f} %" for share in re.findall(r"([\d.]+)% right", drawn)}
    assert {"73 %", "80 %"} <= rounded
    assert set(re.findall(r"\b\d+ %", text)) <= rounded


@pytest.mark.long
def test_the_pictures_are_those_of_today():
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "scripts/concept_pictures.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_decision_has_a_status():
    lacking = [
        page.name
        for page in sorted((ROOT / "docs" / "decisions").glob("*.md"))
        if not re.search(r"^Status: (holds|replaced by \d{4})", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not lacking, "\n".join(lacking)


def test_code_is_not_cut():
    """A long line goes on in the next; nobody has to scroll a block sideways, or misses what is beyond its edge.

    Only on a phone the output of a console keeps its columns and scrolls: its tables would fall apart.
    """
    style = (ROOT / "docs" / "stylesheets" / "extra.css").read_text(encoding="utf-8")
    assert re.search(r"\.md-typeset pre > code \{[^}]*white-space: pre-wrap;[^}]*overflow-wrap: anywhere;", style)
