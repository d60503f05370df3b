"""Run the commands that the pages show, and write what they print into the pages; --check writes nothing and compares.

    python scripts/page_outputs.py [--check] [PAGE ...]

A comment above a block of code says what becomes of it:

    <!-- run -->                       its commands (`$ ...`) are run, or its Python; what follows a command is its output
    <!-- run: with docs/examples -->   the same, in a new folder that begins with the files of docs/examples
    <!-- run: adding docs/examples --> the same, after copying the files of docs/examples to where the page's commands run
    <!-- run: after COMMAND -->        the same, after a command whose output is not shown; also `with ... after COMMAND`
    <!-- output -->                    what the Python of the block before printed
    <!-- file: models.toml -->         the block is written to a file of that name
    <!-- not run: REASON -->           it is not run, for a reason that a reader would accept

The blocks of a page run in order, in one temporary folder. In what a page shows, `...` stands for anything, on a line of its
own for any number of lines. A command that fails shows what it wrote to stderr, too. `vinelm` is run in forks of one
process that has imported it (docs_parts/warm_vinelm.py).
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copy

from docs_parts.warm_vinelm import Warm

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?:<!-- (?P<verb>run|output|file|not run)(?:: (?P<what>[^\n]*?))? -->\n+)?"
    r"^```(?P<language>[\w.{} -]*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
TIMEOUT_S = 900
ANYTHING = "..."
VINELM = re.compile(r"\bvinelm ")


class PageError(Exception):
    """A page shows what cannot be run."""


@dataclass(frozen=True)
class Block:
    """A block of code of a page: what becomes of it, its code, and where the code stands in the text."""

    verb: str
    what: str
    language: str
    code: str
    start: int
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page, in order; ``verb`` is empty where no comment says what becomes of it."""
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code"))
        yield Block(found["verb"] or "", found["what"] or "", found["language"], found["code"], found.start("code"), line)


def commands(code: str) -> Iterator[tuple[str, str]]:
    """Each command of a block with the output shown below it. A line that ends with a backslash goes on."""
    pieces = re.split(r"^\$ (.*(?:(?<=\\)\n.*)*)\n", code, flags=re.MULTILINE)
    if pieces[0].strip():
        raise PageError(f"a block that is run begins with its first command, not with {pieces[0].splitlines()[0]!r}")
    yield from zip(pieces[1::2], pieces[2::2], strict=True)


@cache
def _warm() -> Warm:
    warm = Warm()
    atexit.register(warm.end)
    return warm


def printed(command: list[str] | str, folder: Path) -> str:
    """What a command prints in a folder, without the spaces at the ends of lines; stderr only where it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VINELM_", "COLUMNS", "OPENBLAS"))}
    warm = [str(_warm().folder)] if isinstance(command, str) and VINELM.search(command) else []
    path = os.pathsep.join([*warm, str(Path(sys.executable).parent), kept.get("PATH", "")])
    env = {**kept, "PATH": path, "COLUMNS": "80", "TERM": "dumb", "PYTHONPATH": str(folder)}
    shell = isinstance(command, str)
    done = subprocess.run(
        command, shell=shell, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    text = done.stdout + (done.stderr if done.returncode else "")
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def is_shown(shown: str, made: str) -> bool:
    """Whether a page shows what was printed, given that ``...`` stands for anything."""
    pattern = re.escape(shown.rstrip("\n")).replace(re.escape(ANYTHING), ".*")
    return re.fullmatch(pattern, made.rstrip("\n"), re.DOTALL) is not None


@dataclass
class Folder:
    """The folder that the blocks of a page run in, and what the last Python printed."""

    path: Path
    last: str | None = None

    def fresh(self, block: Block) -> str:
        """The code of a block as it should stand on the page today."""
        if block.verb == "file":
            (self.path / block.what).write_text(block.code, encoding="utf-8")
        elif block.verb == "output":
            if self.last is None:
                raise PageError(f"line {block.line}: no Python was run before this output")
            return block.code if is_shown(block.code, self.last) else self.last
        elif block.verb == "run":
            return self._run(block)
        return block.code

    def _run(self, block: Block) -> str:
        files, is_after, command = f" {block.what}".partition(" after ")
        verb, _, place = files.strip().partition(" ")
        if verb == "with":
            self.path = Path(tempfile.mkdtemp(dir=self.path))
        if place:
            self._add(ROOT / place)
        if is_after:
            printed(command, self.path)
        if block.language == "python":
            self.last = printed([sys.executable, "-c", block.code], self.path)
            return block.code
        made = ""
        for command, shown in commands(block.code):
            output = printed(command.replace("\\\n", " "), self.path)
            made += f"$ {command}\n{shown if is_shown(shown, output) else output}"
        return made

    def _add(self, files: Path) -> None:
        for file in files.iterdir():
            if file.is_file():
                copy(file, self.path)


def fresh(text: str, folder: Folder) -> str:
    """The page as it should stand today; its commands are run in the folder."""
    made, end = "", 0
    for block in blocks(text):
        made += text[end : block.start] + folder.fresh(block)
        end = block.start + len(block.code)
    return made + text[end:]


def pages() -> Iterator[Path]:
    """The pages with a block that is run, the README among them."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if any(block.verb == "run" for block in blocks(path.read_text(encoding="utf-8"))):
            yield path


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a page shows something else than is printed today")
    parser.add_argument("page", nargs="*", type=Path, help="only these pages")
    args = parser.parse_args()
    stale = []
    for path in args.page or pages():
        with tempfile.TemporaryDirectory() as folder:
            text = path.read_text(encoding="utf-8")
            made = fresh(text, Folder(Path(folder)))
        if made != text:
            stale.append(path)
            if not args.check:
                path.write_text(made, encoding="utf-8")
    for path in stale:
        print(f"{path}: {'shows something else: run scripts/page_outputs.py' if args.check else 'written'}")
    return 1 if stale and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
