"""How many chat entries of LiteLLM configs become models that VineLM can call? Makes no call.

Give paths of config files, or of folders (clones) whose ``*litellm*.yaml`` and ``config.yaml`` with a ``model_list`` are read.
Variables that a config names are set to placeholders for the check, in this process only. An entry counts as loaded if it has
a price and its backend accepts it.

    python scripts/litellm_coverage.py CONFIG_OR_FOLDER ... [--json] [--entries]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vinelm.backends import create_backends
from vinelm.catalog import Catalog, Model
from vinelm.catalog.loading import read_catalog_file
from vinelm.clock import WallClock
from vinelm.errors import InputError
from vinelm.requests.protocols import CallContext

PLACEHOLDERS = {
    "(BASE|URL|ENDPOINT|HOST)": "https://placeholder.example/v1",
    "VERSION": "2025-02-01-preview",
    "MODEL": "openai/gpt-4o",
}


@dataclass
class Coverage:
    """The entries of one config. ``wildcards`` stand for many models: they name none, and count neither way."""

    path: str
    chat: int = 0
    loaded: int = 0
    copies: int = 0
    other: int = 0
    wildcards: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of the chat entries that name a model and load, or are copies of one that does."""
        return (self.loaded + self.copies) / self.chat if self.chat else 1.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--entries", action="store_true", help="list the entries that do not load")
    given = parser.parse_args(arguments)
    rows = [coverage_of(path) for path in _configs(given.paths)]
    chat, loaded = sum(row.chat for row in rows), sum(row.loaded + row.copies for row in rows)
    share = loaded / chat if chat else 1.0
    if given.json:
        configs = [{**asdict(row), "share": row.share} for row in rows]
        print(json.dumps({"configs": configs, "chat": chat, "loaded": loaded, "share": share}))
        return 0
    for row in rows:
        more = f"{row.other} other, {row.wildcards} wildcards, {row.copies} copies"
        print(f"{row.loaded + row.copies:4d} of {row.chat:4d} chat entries  {row.share:6.1%}  ({more})  {row.path}")
        for problem in row.problems if given.entries else ():
            print(f"       {problem}")
    print(f"{loaded:4d} of {chat:4d} chat entries  {share:6.1%}  in all")
    return 0


def coverage_of(path: Path) -> Coverage:
    found = Coverage(str(path))
    text = path.read_text(encoding="utf-8")
    for name in set(re.findall(r"os\.environ/([A-Za-z0-9_]+)", text) + re.findall(r"\$\{([A-Za-z0-9_]+)\}", text)):
        os.environ.setdefault(name, next((v for k, v in PLACEHOLDERS.items() if re.search(k, name.upper())), "placeholder"))
    try:
        read = read_catalog_file(path)
    except InputError as error:
        found.problems.append(str(error))
        return found
    found.other, found.copies = len(read.skipped), len(read.copies)
    found.problems += [str(error) for error in read.errors if "stands for many models" not in str(error)]
    found.wildcards = len(read.errors) - len(found.problems)
    found.chat = len(read.models) + len(read.errors) + found.copies - found.wildcards
    for model in read.models:
        problem = _refused(model)
        found.loaded += problem is None
        found.problems += [] if problem is None else [problem]
    return found


def _refused(model: Model) -> str | None:
    """What the backend has against the entry. Where keys would come from a file of Google's, only the options are checked."""
    os.environ.setdefault(model.api_key_env or "VINELM_NONE", "placeholder")
    try:
        backend = create_backends(Catalog([model]))[model.provider]
        if model.provider not in ("vertex", "langchain"):
            context = CallContext(stage="s", prefix=(), clock=WallClock(), on_usage=lambda usage: None)
            backend.chat_model(model, context)
    except InputError as error:
        return str(error)
    return None


def _configs(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
            continue
        for file in sorted(path.rglob("*.y*ml")):
            is_named = "litellm" in file.name or file.name in ("config.yaml", "config.yml")
            if is_named and "model_list:" in file.read_text(encoding="utf-8", errors="replace"):
                yield file


if __name__ == "__main__":
    sys.exit(main())
