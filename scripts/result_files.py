"""Files of results: the figures of a run, with the command, the commit and the date that made them.

A script that measures takes ``--results FILE`` (``add_results_option``), notes what runs before it measures (``provenance``),
and writes both at the end (``write_results``). Files in `results/` are quoted by the pages (`result_tables.py`).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DIGITS = 5
LEFT_OUT = {"--json": 1, "--results": 2, "--workers": 2, "--jobs": 2}
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
    words, at = ["python", f"scripts/{Path(argv[0]).name}"], 1
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
