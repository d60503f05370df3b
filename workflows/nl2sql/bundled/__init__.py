"""Databases and questions made by our own code from a seed, for use without any download."""

from vinelm.workflows.nl2sql.bundled.cache import BundledDataset, bundled_dataset

__all__ = ["BundledDataset", "bundled_dataset"]
