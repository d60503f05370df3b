"""Databases and questions generated from a seed, for use without a download."""

from vinelm.workflows.nl2sql.bundled.cache import bundled_dataset
from vinelm.workflows.nl2sql.bundled.files import BundledDataset

__all__ = ["BundledDataset", "bundled_dataset"]
