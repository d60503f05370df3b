"""Reads and writes ``.patterns`` files: JSON with paths, shapes, counts and constants, and no other values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError
from vinelm.estimator.patterns.bindings import Binding, Bindings
from vinelm.estimator.patterns.patterns import Patterns
from vinelm.estimator.patterns.regression import FEATURES
from vinelm.io.atomic import write_atomic
from vinelm.io.file_kinds import unread
from vinelm.io.reading import read_text

FORMAT, VERSION = "vinelm patterns", 1


def write_patterns(patterns: Patterns, path: Path) -> None:
    """Write ``patterns`` atomically; equal patterns give equal bytes.

    Raises:
        OSError: the file cannot be written.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "reads": sorted(patterns.reads),
        "sets": [[tool, [[name, *_listed(one)] for name, one in bindings]] for tool, bindings in patterns.sets],
        "counts": [[*key[:4], list(key[4]), *count] for key, count in sorted(patterns.counts.items())],
        "features": list(FEATURES),
        "coefficients": list(patterns.coefficients),
        "seconds": {tool: list(some) for tool, some in sorted(patterns.seconds.items())},
        "schemas": dict(sorted(patterns.schemas.items())),
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    write_atomic(path, ("{" + lines + "}\n").encode())


def read_patterns(path: Path) -> Patterns:
    """Return the patterns of a file.

    Raises:
        ConfigError: the file cannot be read, or does not have this format and version.
    """
    try:
        content = json.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({unread(path, error)})") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"{path}: not a file of patterns: write one with `vinelm tools mine`")
    if content.get("version") != VERSION or content.get("features") != list(FEATURES):
        raise ConfigError(f"{path}: written by another version of VineLM: mine it anew with `vinelm tools mine`")
    try:
        return _patterns(content)
    except (KeyError, TypeError, ValueError, IndexError):
        raise ConfigError(f"{path}: damaged: mine it anew with `vinelm tools mine`") from None


def _patterns(content: dict[str, Any]) -> Patterns:
    sets = tuple((str(tool), _bindings(bindings)) for tool, bindings in content["sets"])
    counts = {
        (int(at), int(rank), int(count), bool(again), tuple(map(str, suffix))): (int(hits), int(trials))
        for at, rank, count, again, suffix, hits, trials in content["counts"]
    }
    coefficients = tuple(map(float, content["coefficients"]))
    if (coefficients and len(coefficients) != len(FEATURES)) or not all(map(math.isfinite, coefficients)):
        raise ValueError("coefficients")
    if any(not (0 <= key[0] < len(sets) and 0 <= hits <= trials) for key, (hits, trials) in counts.items()):
        raise ValueError("counts")
    seconds = {str(tool): tuple(map(float, some)) for tool, some in content["seconds"].items()}
    schemas = {str(tool): str(digest) for tool, digest in content["schemas"].items()}
    return Patterns(frozenset(map(str, content["reads"])), sets, counts, coefficients, seconds, schemas)


def _listed(one: Binding) -> list[Any]:
    return [one.kind, one.tool, list(one.path), one.shape, one.text]


def _bindings(rows: list[Any]) -> Bindings:
    found = []
    for name, kind, tool, path, shape, text in rows:
        if kind not in ("call", "named", "user", "constant") or not all(isinstance(step, (str, int)) for step in path):
            raise ValueError("binding")
        if kind == "constant":
            json.loads(text)
        found.append((str(name), Binding(kind, str(tool), tuple(path), str(shape), str(text))))
    return tuple(found)
