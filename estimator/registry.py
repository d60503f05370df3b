"""Estimators by name."""

from __future__ import annotations

from vinelm.estimator.base import Estimator, RateEstimator
from vinelm.estimator.cascade import CascadeEstimator, CascadeSvdEstimator

from vinelm.errors import ConfigError

_CLASSES: dict[str, type[RateEstimator]] = {cls.name: cls for cls in (CascadeEstimator, CascadeSvdEstimator)}

ESTIMATORS: tuple[str, ...] = tuple(_CLASSES)
"""Names that :func:`make_estimator` knows."""


def make_estimator(name: str) -> Estimator:
    """A new estimator with its default settings; :class:`ConfigError` for an unknown name."""
    try:
        return _CLASSES[name]()
    except KeyError:
        raise ConfigError(f"unknown estimator {name!r}: use one of {', '.join(ESTIMATORS)}") from None
