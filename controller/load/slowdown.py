"""How much slower an engine answers the more requests it holds: a monotone curve, fitted to measurements (§5.4)."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vinelm.errors import ConfigError, EvidenceError
from vinelm.io import write_atomic
from vinelm.trie import FloatArray


@dataclass(frozen=True, slots=True)
class SlowdownCurve:
    """Extra seconds of one invocation by the number of other requests in its engine; linear between the points and beyond the
    last two. ``requests`` rises from 0; ``extra_s`` never falls and is 0 at 0.
    """

    requests: tuple[float, ...]
    extra_s: tuple[float, ...]

    def at(self, requests: float) -> float:
        """Extra seconds with that many other requests in the engine."""
        if requests <= self.requests[-1] or len(self.requests) == 1:
            return float(np.interp(requests, self.requests, self.extra_s))
        (x0, x1), (y0, y1) = self.requests[-2:], self.extra_s[-2:]
        return y1 + (requests - x1) * (y1 - y0) / (x1 - x0)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"requests": list(self.requests), "extra_s": list(self.extra_s)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SlowdownCurve:
        """The curve that :meth:`to_dict` wrote."""
        return cls(tuple(map(float, plain["requests"])), tuple(map(float, plain["extra_s"])))


def fit_slowdown(requests: Sequence[float], latency_s: Sequence[float]) -> SlowdownCurve:
    """The monotone curve nearest to the measurements by least squares: latency with so many other requests in the engine.

    Its zero is the fitted latency at the fewest requests seen. :class:`EvidenceError` without measurements.
    """
    if not len(requests):
        raise EvidenceError("a slowdown curve needs measurements: latencies at several numbers of requests in the engine")
    levels, inverse = np.unique(np.asarray(requests, np.float64), return_inverse=True)
    weight = np.bincount(inverse).astype(np.float64)
    mean = np.bincount(inverse, weights=np.asarray(latency_s, np.float64)) / weight
    fitted = _isotonic(mean, weight)
    return SlowdownCurve((*([0.0] if levels[0] > 0 else []), *levels.tolist()),
                         (*([0.0] if levels[0] > 0 else []), *(fitted - fitted[0]).tolist()))  # fmt: skip


def _isotonic(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Least squares under values that never fall: neighbours that fall are pooled."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, mass in zip(values.tolist(), weight.tolist(), strict=True):
        pools.append((value, mass, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (m1, w1, n1), (m2, w2, n2) = pools[-2:]
            pools[-2:] = [((m1 * w1 + m2 * w2) / (w1 + w2), w1 + w2, n1 + n2)]
    return np.repeat([mean for mean, _, _ in pools], [members for _, _, members in pools])


VERSION = 1
_FORMAT = "vinelm slowdown curves"


def load_curves(path: str | Path) -> dict[str, SlowdownCurve]:
    """The curves of a file by engine: JSON as :func:`save_curve` writes it, or the same tables as TOML.

    :class:`ConfigError` for a file that is missing, newer or malformed; it names the engine at fault.
    """
    plain = _read(Path(path))
    return {engine: _curve(engine, fields, path) for engine, fields in plain["curves"].items()}


def save_curve(path: str | Path, engine: str, curve: SlowdownCurve, measured: Mapping[str, Any]) -> None:
    """Write the engine's curve into the JSON file, beside those of other engines that it holds. ``measured`` is kept with it.

    Whole or not at all: the old file stays until the new one is on disk.
    """
    target = check_writable(path)
    plain: dict[str, Any] = _read(target) if target.exists() else {"format": _FORMAT, "version": VERSION, "curves": {}}
    curves = {**plain["curves"], engine: {**curve.to_dict(), "measured": dict(measured)}}
    try:
        write_atomic(target, (json.dumps({**plain, "curves": curves}, indent=1) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the curves: {error.strerror}: name another file") from error


def check_writable(path: str | Path) -> Path:
    """The path, if :func:`save_curve` can write there; asked before the first call is paid for. :class:`ConfigError` else."""
    target = Path(path)
    if target.suffix == ".toml":
        raise ConfigError(f"{path}: curves are written as JSON: name a .json file")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise ConfigError(f"{path}: cannot write there: make the folder, or name another file")
    if target.exists():
        load_curves(target)
    return target


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        plain = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the slowdown curves: {error.strerror}: run `vinelm calibrate` first") from error
    except ValueError as error:
        raise ConfigError(
            f"{path}: holds no slowdown curves: {type(error).__name__}: write it with `vinelm calibrate`"
        ) from error
    if not isinstance(plain, dict) or plain.get("format") != _FORMAT or not isinstance(plain.get("curves"), dict):
        raise ConfigError(f"{path}: holds no slowdown curves: write it with `vinelm calibrate`")
    if plain.get("version") != VERSION:
        raise ConfigError(f"{path}: version {plain.get('version')} of the slowdown curves is not known: update VineLM")
    return plain


def _curve(engine: str, fields: Any, path: str | Path) -> SlowdownCurve:
    try:
        curve = SlowdownCurve.from_dict(fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: curve of {engine!r}: it needs the lists of numbers `requests` and `extra_s`") from error
    requests, extra_s = curve.requests, curve.extra_s
    rises = all(a < b for a, b in pairwise(requests))
    never_falls = all(a <= b for a, b in pairwise(extra_s))
    finite = all(map(math.isfinite, (*requests, *extra_s)))
    if not (requests and len(requests) == len(extra_s) and finite and rises and never_falls and requests[0] == extra_s[0] == 0):
        raise ConfigError(
            f"{path}: curve of {engine!r}: `requests` must rise from 0 and `extra_s` start at 0 and never fall, both as long"
        )
    return curve
