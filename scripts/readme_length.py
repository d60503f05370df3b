"""Say how long README and its sentences are, and fail above the limits.

A word is whatever stands between spaces and has a letter or a digit: in prose, code, output and tables; comments do not count.
Sentences are those of prose and list items; a cell of a table may be as long as a sentence.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
MOST_WORDS, MEAN_SENTENCE, LONGEST_SENTENCE = 900, 15.0, 30
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[*_)]*\s+")


@dataclass(frozen=True)
class Length:
    """Words of a page, its sentences and the cells of its tables."""

    words: int
    sentences: tuple[str, ...]
    cells: tuple[str, ...]

    @classmethod
    def of(cls, page: str) -> Length:
        """Measure a page of Markdown."""
        text = _COMMENT.sub(" ", page)
        prose = re.sub(r"<[^>]*>", " ", _LINK.sub(r"\1", _CODE.sub("\n\n", text)))
        lines = prose.splitlines()
        cells = [cell.strip() for line in lines if line.startswith("|") for cell in line.split("|")]
        return cls(words=count(text), sentences=tuple(sentences(lines)), cells=tuple(filter(count, cells)))

    @property
    def mean(self) -> float:
        """Words of a sentence, on average; 0 where there is none."""
        return sum(map(count, self.sentences)) / len(self.sentences) if self.sentences else 0.0

    def faults(self) -> Iterator[str]:
        """What is too long, one line each."""
        if self.words > MOST_WORDS:
            yield f"{self.words} words: at most {MOST_WORDS}"
        if self.mean > MEAN_SENTENCE:
            yield f"{self.mean:.1f} words a sentence on average: at most {MEAN_SENTENCE:g}"
        for one in (*self.sentences, *self.cells):
            if count(one) > LONGEST_SENTENCE:
                yield f"a sentence of {count(one)} words, more than {LONGEST_SENTENCE}: {one[:60]}..."


def count(text: str) -> int:
    """Return the number of words."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def sentences(lines: list[str]) -> Iterator[str]:
    """Yield the sentences of paragraphs and list items; headings and tables have none."""
    blocks, here = [""], "\n".join("" if line.startswith(("#", "|")) else line for line in lines)
    for line in here.splitlines():
        starts = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        if starts or not line.strip():
            blocks.append("")
        blocks[-1] += f" {line[starts.end() :] if starts else line}"
    for block in blocks:
        yield from (one.strip() for one in _END.split(block) if count(one))


def main() -> int:
    """Print the figures; 1 if a limit is passed."""
    found = Length.of(README.read_text(encoding="utf-8"))
    longest = max(map(count, found.sentences))
    print(f"{README.name}: {found.words} words, {found.mean:.1f} a sentence on average, {longest} in the longest")
    wrong = list(found.faults())
    for fault in wrong:
        print(f"{README.name}: {fault}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
