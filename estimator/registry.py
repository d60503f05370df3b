"""Estimators by name, imported on first use."""

from __future__ import annotations

from importlib import import_module

from vinelm.errors import ConfigError
from vinelm.estimator.base import RateEstimator
from vinelm.meant import did_you_mean

_HOME = {
    "latent": ("vinelm.estimator.latent.estimator", "LatentEstimator"),
    "cascade": ("vinelm.estimator.baselines.cascade", "CascadeEstimator"),
    "cascade-svd": ("vinelm.estimator.baselines.cascade", "CascadeSvdEstimator"),
    "average": ("vinelm.estimator.baselines.column_means", "AverageEstimator"),
    "prefix-average": ("vinelm.estimator.baselines.column_means", "PrefixAverageEstimator"),
    "prefix-impute": ("vinelm.estimator.baselines.column_means", "PrefixImputeEstimator"),
    "prefix-xgboost": ("vinelm.estimator.baselines.boosting", "PrefixXgboostEstimator"),
}

ESTIMATORS: tuple[str, ...] = tuple(_HOME)
"""Names for :func:`make_estimator`; the first is the default."""


def make_estimator(name: str = "latent") -> RateEstimator:
    """Return a new estimator with default settings; raises :class:`ConfigError` for an unknown name."""
    try:
        module, attribute = _HOME[name]
    except KeyError:
        raise ConfigError(
            f"unknown estimator {name!r}{did_you_mean(name, ESTIMATORS)}: use one of {', '.join(ESTIMATORS)}"
        ) from None
    made: RateEstimator = getattr(import_module(module), attribute)()
    return made
