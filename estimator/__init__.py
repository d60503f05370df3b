"""Observations in, annotated trie out. Pure."""

from vinelm.estimator.base import Estimator
from vinelm.estimator.registry import ESTIMATORS, make_estimator

__all__ = ["ESTIMATORS", "Estimator", "make_estimator"]
