"""Figures of the text: physical lines, comments, and lines that the formatter must leave alone."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from pathlib import Path

DIRECTIVE = re.compile(r"#\s*(fmt|noqa|type|ruff|mypy|pragma|pylint)\b|#\s*-{2,}|#!")
"""What tells a tool something, and rulers between sections: neither says why."""
SKIPPED = "# fmt: " + "skip"


def tracked(root: Path, tops: tuple[str, ...]) -> list[Path]:
    """The .py and .pyi files that git tracks below these folders; without git, all there are."""
    done = subprocess.run(["git", "ls-files", "-z", "--", *tops], cwd=root, capture_output=True, check=False)
    names = done.stdout.decode().split("\0") if done.returncode == 0 else []
    found = [root / name for name in names if name.endswith((".py", ".pyi"))]
    if not found:
        found = [path for top in tops for path in (root / top).rglob("*.py*") if path.suffix in (".py", ".pyi")]
    return sorted(path for path in found if path.exists())


def comments(text: str) -> list[int]:
    """The lines with a comment, without directives and rulers."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.start[0] for token in tokens if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string)]


def skips(text: str) -> list[int]:
    """The lines that the formatter must leave alone."""
    return [number for number, line in enumerate(text.splitlines(), 1) if SKIPPED in line]
