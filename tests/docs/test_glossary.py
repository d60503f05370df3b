"""docs/concepts.md#glossary: twenty words in order, each once, short, and linked from where readers start."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8").partition("\n## Glossary\n")[2]
ENTRIES = re.findall(r"^\*\*(.+?)\.\*\* (.*?)(?=\n\n|\Z)", PAGE, re.DOTALL | re.MULTILINE)


def test_terms_are_in_alphabetical_order():
    terms = [term.casefold() for term, _ in ENTRIES]
    assert terms == sorted(set(terms))


def test_entries_are_short():
    assert [term for term, text in ENTRIES if len(text.split()) > 50] == []


def test_there_are_twenty():
    assert len(ENTRIES) == 20


def test_no_word_of_the_code_is_defined_twice():
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    words = architecture.split("## Words")[1].split("## Layers")[0]
    terms = {term.strip() for line in re.findall(r"^\| ([a-z, ]+) \|", words, re.MULTILINE) for term in line.split(",")}
    assert len(terms) > 8
    assert not terms & {term.strip().casefold() for entry, _ in ENTRIES for term in entry.split(";")}


def test_readers_find_it():
    for page in ("README.md", "docs/architecture.md", "CONTRIBUTING.md"):
        assert "concepts.md#glossary" in (ROOT / page).read_text(encoding="utf-8"), page
