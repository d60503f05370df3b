"""Trie files with valid checksums and wrong contents: each is refused in one line, or can be planned over at once."""

from __future__ import annotations

import json
import random
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from kit.oracles.random_cases import random_annotated

from vinelm import AnnotatedTrie, Objective, load_trie, save_trie
from vinelm.controller import Planner
from vinelm.errors import InfeasibleError, TrieFileError
from vinelm.trie.annotated_trie import NODE_ARRAYS
from vinelm.trie.trie import ARRAYS

Progress = Callable[[str], None]
FILES = 600
SECONDS = 5.0
"""Loading a file of some hundred nodes and planning over it takes milliseconds; longer is a hang."""
JUNK = (None, -1, 0, 10**9, 10**400, "", "x", [], {}, [[]], True, 1.5, "\u0000")


def run(progress: Progress, *, files: int = FILES, seed: int = 0) -> dict[str, Any]:
    """Make, load and plan over ``files`` wrong tries.

    Returns:
        ``attempts``, ``refused``, ``harmless`` (loaded and planned) and ``through`` (another exception, or a hang).
    """
    rng = random.Random(seed)
    through: list[str] = []
    refused = harmless = 0
    with tempfile.TemporaryDirectory(prefix="hostile-trie-") as scratch:
        path = Path(scratch) / "a.vine"
        for number in range(files):
            save_trie(path, random_annotated(rng))
            what = _spoil(path, rng)
            began = time.monotonic()
            try:
                _plan(load_trie(path), rng)
                harmless += 1
            except TrieFileError as error:
                refused += 1
                if "\n" in str(error):
                    through.append(f"{what}: more than one line")
            except Exception as error:
                through.append(f"{what}: {type(error).__name__}: {error}")
            if time.monotonic() - began > SECONDS:
                through.append(f"{what}: took {time.monotonic() - began:.0f} s")
            if number % 100 == 99:
                progress(f"tries: {number + 1} of {files}, {len(through)} through")
    return {"attempts": files, "refused": refused, "harmless": harmless, "through": through}


def _plan(annotated: AnnotatedTrie, rng: random.Random) -> None:
    planner = Planner(annotated)
    for objective in (Objective(maximize="accuracy", max_cost_usd=1.0, max_latency_s=9.0), Objective(minimize="cost")):
        for node in {0, rng.randrange(len(annotated.trie))}:
            try:
                planner.plan(objective, node=node)
            except InfeasibleError:
                continue


def _spoil(path: Path, rng: random.Random) -> str:
    """Change one array or one value of the manifest, and write the file with checksums that fit."""
    with zipfile.ZipFile(path) as old:
        members = {entry.filename: old.read(entry) for entry in old.infolist()}
    if rng.random() < 0.6:
        name = rng.choice([f"trie.{name}" for name in ARRAYS] + list(NODE_ARRAYS))
        values = np.lib.format.read_array(_reader(members[f"{name}.npy"])).copy()
        what = f"{name} {_change(values, rng)}"
        members[f"{name}.npy"] = _written(values)
    else:
        manifest = json.loads(members["manifest.json"])
        what = f"manifest {_change_json(manifest, rng)}"
        members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(path, "w") as new:
        for name, content in members.items():
            new.writestr(name, content)
    return what


def _change(values: Any, rng: random.Random) -> str:
    kind = rng.choice(("shuffled", "one value", "reversed", "constant"))
    if kind == "shuffled":
        np.random.default_rng(rng.randrange(2**32)).shuffle(values)
    elif kind == "reversed":
        values[:] = values[::-1].copy()
    else:
        extremes: tuple[Any, ...] = (True, False) if values.dtype == np.bool_ else (0, 1, -1, 7, len(values), 10**4)
        if values.dtype.kind == "f":
            extremes = (np.nan, np.inf, -np.inf, 1e308, -1e-300, 2.0)
        values[slice(None) if kind == "constant" else rng.randrange(len(values))] = rng.choice(extremes)
    return kind


def _change_json(node: Any, rng: random.Random) -> str:
    """Replace a random value somewhere in the document."""
    trail = []
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        trail.append(str(key))
        if not isinstance(node[key], (dict, list)) or not node[key] or rng.random() < 0.2:
            node[key] = rng.choice(JUNK)
            return f"{'.'.join(trail)} = {str(node[key])[:20]}"
        node = node[key]


def _reader(content: bytes) -> Any:
    import io

    return io.BytesIO(content)


def _written(values: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()
