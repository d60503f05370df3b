"""Estimators by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from vinelm.errors import ConfigError
from vinelm.estimator.base import Estimator

_HOME = {
    "latent": ("vinelm.estimator.latent", "LatentEstimator"),
    "cascade": ("vinelm.estimator.cascade", "CascadeEstimator"),
    "cascade-svd": ("vinelm.estimator.cascade", "CascadeSvdEstimator"),
    "average": ("vinelm.estimator.columns", "AverageEstimator"),
    "prefix-average": ("vinelm.estimator.columns", "PrefixAverageEstimator"),
    "prefix-impute": ("vinelm.estimator.columns", "PrefixImputeEstimator"),
    "prefix-xgboost": ("vinelm.estimator.boosting", "PrefixXgboostEstimator"),
}

ESTIMATORS: tuple[str, ...] = tuple(_HOME)
"""Names that :func:`make_estimator` knows; the first is the default."""


def make_estimator(name: str = "latent") -> Estimator:
    """A new estimator with its default settings; :class:`ConfigError` for an unknown name."""
    try:
        module, attribute = _HOME[name]
    except KeyError:
        raise ConfigError(f"unknown estimator {name!r}: use one of {', '.join(ESTIMATORS)}") from None
    made: Estimator = getattr(import_module(module), attribute)()
    return made
