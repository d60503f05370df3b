"""Databases and questions made by our own code from a seed, for use without any download."""

from vinelm.workflows.nl2sql.bundled.cache import bundled_dataset
from vinelm.workflows.nl2sql.bundled.files import BundledDataset

__all__ = ["BundledDataset", "bundled_dataset"]
