"""The search of the site finds the right page: twenty questions in words that people type, ranked as the site ranks them."""

import math
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUESTIONS = {
    "reduce cost of LLM calls": {"replay.md"},
    "fallback": {"serve.md"},
    "retry": {"serve.md"},
    "streaming": {"frameworks.md"},
    "timeout": {"serve.md"},
    "proxy": {"gateway.md"},
    "budget": {"profiling.md", "batch.md", "fleet.md", "serve.md"},
    "docker": {"fleet.md", "gateway.md"},
    "prompt cache": {"providers.md"},
    "compare models": {"evaluate.md"},
    "rate limits": {"fleet.md"},
    "openai sdk": {"frameworks.md"},
    "langgraph": {"langgraph.md", "your-own-app.md"},
    "canary": {"serve.md"},
    "tracing": {"observability.md"},
    "vllm": {"own-engines.md"},
    "litellm": {"fields.md", "replay.md"},
    "without labels": {"try.md", "profiling.md"},
    "azure": {"providers.md"},
    "confidence intervals": {"evaluate.md"},
}
"""A question to the pages that answer it."""
AMONG_FIRST, FOUND = 3, 18
TITLE_BOOST = 1000
"""What a word in a title counts, as the site's theme (Material for MkDocs) tells lunr; a word in the text counts 1."""
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def words_of(text):
    return [re.sub(r"(?:ies|es|s|ing|ed)$", "", word) for word in re.findall(r"[a-z0-9]+", text.lower()) if len(word) > 1]


def sections_of(page):
    """The sections of a page as (title, text, is the page's first): the site's index has one entry for each."""
    text = page.read_text(encoding="utf-8")
    hidden = BLOCK.sub(lambda block: " " * len(block[0]), text)  # a comment in a block of code looks like a heading
    heads = [(found[1], found.start(), found.end()) for found in HEADING.finditer(hidden)]
    for at, ((title, _, begin), (_, end, _)) in enumerate(pairwise([*heads, ("", len(text), 0)])):
        yield title, re.sub(r"<!--.*?-->", "", text[begin:end], flags=re.DOTALL), at == 0


class Search:
    """Lunr's ranking (BM25 in each field, the title's boosted) with Material's order of pages: a page by its best section."""

    def __init__(self, pages):
        self.sections = [(page.name, *section) for page in pages for section in sections_of(page)]
        self.counts = [[Counter(words_of(text)) for text in (title, text)] for _, title, text, _ in self.sections]
        self.mean = [sum(sum(each[field].values()) for each in self.counts) / len(self.counts) for field in (0, 1)]
        self.sections_with = Counter(word for title, text in self.counts for word in {*title, *text})

    def weight(self, word, at):
        rarity = math.log(1 + (len(self.counts) - self.sections_with[word] + 0.5) / (self.sections_with[word] + 0.5))
        total = 0.0
        for field, boost in enumerate((TITLE_BOOST, 1)):
            count = self.counts[at][field]
            length = 1.3 * (0.25 + 0.75 * sum(count.values()) / self.mean[field])
            total += boost * rarity * 2.2 * count[word] / (length + count[word])
        return total

    def pages(self, question):
        asked, best = words_of(question), defaultdict(float)
        for at, (page, _, _, is_first) in enumerate(self.sections):
            found = [self.weight(word, at) for word in asked]
            score = sum(found) * (1 + (is_first + all(found)) ** 2)
            best[page] = max(best[page], score)
        return sorted(best, key=best.get, reverse=True)


def menu():
    return [
        ROOT / "docs" / name for name in re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    ]


def test_the_right_page_is_among_the_first_three_for_eighteen_of_twenty_questions():
    search = Search([page for page in menu() if page.is_file()])
    first = {question: search.pages(question)[:AMONG_FIRST] for question in QUESTIONS}
    missed = [
        f"{question}: {', '.join(first[question])}" for question, right in QUESTIONS.items() if not right & {*first[question]}
    ]
    assert len(QUESTIONS) - len(missed) >= FOUND, "\n".join(missed)
