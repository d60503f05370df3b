"""Curves of an engine's slowdown by its number of requests, fitted to measurements (VineLM paper §5.4)."""

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
from vinelm.io.atomic import write_atomic
from vinelm.io.file_kinds import unread
from vinelm.io.reading import read_text


@dataclass(frozen=True, slots=True)
class SlowdownCurve:
    """The extra seconds of one call, as a piecewise linear function of the number of other requests in its engine.

    Beyond the last point, the curve continues with the slope of its last segment.

    Attributes:
        requests: The numbers of other requests at the curve's points, strictly increasing from 0.
        extra_s: The extra seconds at each of these numbers, non-decreasing from 0.
    """

    requests: tuple[float, ...]
    extra_s: tuple[float, ...]

    def at(self, requests: float) -> float:
        """Return a call's extra seconds with ``requests`` other requests in the engine."""
        if requests <= self.requests[-1] or len(self.requests) == 1:
            return float(np.interp(requests, self.requests, self.extra_s))
        (x0, x1), (y0, y1) = self.requests[-2:], self.extra_s[-2:]
        return y1 + (requests - x1) * (y1 - y0) / (x1 - x0)

    def to_dict(self) -> dict[str, Any]:
        """Return the curve's points as JSON types."""
        return {"requests": list(self.requests), "extra_s": list(self.extra_s)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SlowdownCurve:
        """Return the curve that :meth:`to_dict` has written."""
        return cls(tuple(map(float, plain["requests"])), tuple(map(float, plain["extra_s"])))


def fit_slowdown(requests: Sequence[float], latency_s: Sequence[float]) -> SlowdownCurve:
    """Fit a curve by isotonic regression: the non-decreasing least-squares fit.

    The extra seconds at a number of requests are the fitted latency there minus the fitted latency at the
    smallest measured number.

    Args:
        requests: The number of other requests in the engine at each measurement.
        latency_s: The latency in seconds of each measurement.

    Raises:
        EvidenceError: There are no measurements.
    """
    from scipy.optimize import isotonic_regression  # serving only reads curves, and does not need its 40 MB

    if not len(requests):
        raise EvidenceError("a slowdown curve needs measurements: latencies at several numbers of requests in the engine")
    levels, inverse = np.unique(np.asarray(requests, np.float64), return_inverse=True)
    weight = np.bincount(inverse).astype(np.float64)
    mean = np.bincount(inverse, weights=np.asarray(latency_s, np.float64)) / weight
    fitted = isotonic_regression(mean, weights=weight).x
    return SlowdownCurve((*([0.0] if levels[0] > 0 else []), *levels.tolist()),
                         (*([0.0] if levels[0] > 0 else []), *(fitted - fitted[0]).tolist()))  # fmt: skip


def spread_curve(curves: Sequence[SlowdownCurve]) -> SlowdownCurve:
    """Return one slowdown curve for several engines that share requests evenly, such as the replicas of a model.

    The curve takes the number of requests in all engines together, and returns the mean of the engines' extra seconds.
    """
    points = sorted({requests for curve in curves for requests in curve.requests})
    extra_s = (sum(curve.at(requests) for curve in curves) / len(curves) for requests in points)
    return SlowdownCurve(tuple(len(curves) * requests for requests in points), tuple(extra_s))


VERSION = 1
_FORMAT = "vinelm slowdown curves"


def load_curves(path: str | Path) -> dict[str, SlowdownCurve]:
    """Return the slowdown curves in a file, by engine.

    The file is JSON as :func:`save_curve` writes it, or TOML with the same tables.

    Raises:
        ConfigError: The file is missing, malformed or of a newer version; the message names the engine concerned.
    """
    plain = _read(Path(path))
    return {engine: _curve(engine, fields, path) for engine, fields in plain["curves"].items()}


def save_curve(path: str | Path, engine: str, curve: SlowdownCurve, measured: Mapping[str, Any]) -> None:
    """Write the engine's curve into a JSON file and keep the curves of other engines in it. The write is atomic.

    Args:
        path: The file; created if it does not exist.
        engine: The engine's name.
        curve: The curve.
        measured: A description of how the curve was measured, as JSON types; stored with the curve.

    Raises:
        ConfigError: The file cannot be written, or an existing file holds no curves.
    """
    target = check_writable(path)
    plain: dict[str, Any] = _read(target) if target.exists() else {"format": _FORMAT, "version": VERSION, "curves": {}}
    curves = {**plain["curves"], engine: {**curve.to_dict(), "measured": dict(measured)}}
    try:
        write_atomic(target, (json.dumps({**plain, "curves": curves}, indent=1) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the curves: {error.strerror}: name another file") from error


def check_writable(path: str | Path) -> Path:
    """Return the path if :func:`save_curve` can write there; call it before paying for measurements.

    Raises:
        ConfigError: The file cannot be written, or an existing file holds no curves.
    """
    target = Path(path)
    if target.suffix == ".toml":
        raise ConfigError(f"{path}: curves are written as JSON: name a .json file")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise ConfigError(f"{path}: cannot write there: make the folder, or name another file")
    if target.exists():
        if not target.is_file():  # reading a pipe would wait for a writer
            raise ConfigError(f"{path}: is not a regular file: name another file")
        load_curves(target)
    return target


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path)
        plain = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot read the slowdown curves: {unread(path, error)}: run `vinelm engine calibrate` first"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{path}: holds no slowdown curves: {type(error).__name__}: write it with `vinelm engine calibrate`"
        ) from error
    if not isinstance(plain, dict) or plain.get("format") != _FORMAT or not isinstance(plain.get("curves"), dict):
        raise ConfigError(f"{path}: holds no slowdown curves: write it with `vinelm engine calibrate`")
    if plain.get("version") != VERSION:
        raise ConfigError(f"{path}: version {plain.get('version')} of the slowdown curves is unknown: update VineLM")
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
            f"{path}: curve of {engine!r}: `requests` must rise from 0, `extra_s` start at 0 and never fall, both of one length"
        )
    return curve
