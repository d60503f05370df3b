"""Files of results: the figures of a run, with the command, the commit and the date that made them.

A script that measures takes ``--results FILE`` (``add_results_option``), notes what runs before it measures (``provenance``),
and writes both at the end (``write_results``). Files in `results/` are quoted by the pages (`result_tables.py`).

Run by itself, it makes files in `results/` again, each by the command that it names, on the commit that is checked out. All of
them take many hours. `python scripts/result_tables.py` then writes the pages.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
PLACES = {"attacks": "tests/attacks"}
"""Folders of scripts that are not `scripts/`, by their last name."""
DIGITS = 5
LEFT_OUT = {"--json": 1, "--results": 2, "--workers": 2, "--jobs": 2, "--kept": 2}
"""Options that change no figure, with the number of words that each takes."""


def add_results_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="also write the figures, with the command and the commit, for the pages"
    )


def provenance(options: argparse.Namespace) -> dict[str, str]:
    """What makes the figures: the command without paths of this machine, the commit and the day (UTC).

    Call it before measuring: a commit that is made meanwhile is not what runs.
    """
    return {"command": command(sys.argv, options), "commit": commit(), "date": datetime.now(UTC).date().isoformat()}


def command(argv: list[str], options: argparse.Namespace) -> str:
    """The line that repeats the run from the root of the repository; a path that was given is DIR or FILE."""
    paths = {str(value): "DIR" if value.is_dir() else "FILE" for value in vars(options).values() if isinstance(value, Path)}
    words, at = ["python", f"{PLACES.get(Path(argv[0]).resolve().parent.name, 'scripts')}/{Path(argv[0]).name}"], 1
    while at < len(argv):
        word = argv[at]
        option, equals, value = word.partition("=")
        if option in LEFT_OUT:
            at += 1 if equals else LEFT_OUT[option]
            continue
        words.append(f"{option}={paths[value]}" if equals and value in paths else paths.get(word) or shlex.quote(word))
        at += 1
    if getattr(options, "data", None) and not any(word.split("=")[0] == "--data" for word in words):
        words.append("--data DIR")  # named by VINELM_DATA
    return " ".join(words)


def commit() -> str:
    """The commit of this checkout, "+ changes" where files other than pages and results differ; "unknown" outside one."""

    def git(*words: str) -> str:
        told = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
        return told.stdout.strip()

    try:
        changes = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/results", ":!/docs", ":!/*.md")
        return git("rev-parse", "HEAD") + (" + changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write_results(path: Path, made: dict[str, str], figures: dict[str, Any]) -> None:
    """Write what made the figures, and the figures, as one JSON object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made | rounded(figures), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """The same with all floats at five significant digits, or at two decimals where these are more."""
    if isinstance(value, float):
        return round(value, 2) if abs(value) >= 10 ** (DIGITS - 3) else float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def again(file: Path, data: Path | None, scratch: Path) -> list[str]:
    """The words of the command that makes this file again, with ``data`` for ``--data DIR`` and ``scratch`` for other folders.

    Raises:
        ValueError: the command needs a folder of data, and none is given.
    """
    words = shlex.split(json.loads(file.read_text(encoding="utf-8"))["command"])
    for at, word in enumerate(words):
        if word != "DIR":
            continue
        if words[at - 1] != "--data":
            words[at] = str(scratch)
        elif data is None:
            raise ValueError(f"{file.name}: its command reads real data: name the folder by --data")
        else:
            words[at] = str(data)
    own = [] if "-o" in words else ["--results", str(file)]  # one script writes its figures into the folder of its page
    return [sys.executable, *words[1:], *own]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of files in results/, such as signals [default: all]")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of real data, for the commands that read it")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    options = parser.parse_args()
    files = [RESULTS / f"{name}.json" for name in options.names] or sorted(RESULTS.glob("*.json"))
    missing = [file.name for file in files if not file.exists()]
    if missing:
        parser.error(f"results/ has no {', '.join(missing)}")
    if not options.dry_run and commit().endswith("changes"):
        parser.error("files differ from the commit: commit first, so that the results can name what made them")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            scratch = Path(folder, file.stem)
            try:
                words = again(file, options.data, scratch)
            except ValueError as error:
                parser.error(str(error))
            print(shlex.join(words), flush=True)
            if options.dry_run:
                continue
            scratch.mkdir()
            if subprocess.run(words, cwd=RESULTS.parent, check=False).returncode:
                failed.append(file.name)
            elif "-o" in words:
                file.write_text((scratch / "reproduce.json").read_text(encoding="utf-8"), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
