"""Bundled databases, as SQL files, and questions about them, for use without a download."""

from vinelm.workflows.nl2sql.bundled.cache import BundledDataset, bundled_dataset

__all__ = ["BundledDataset", "bundled_dataset"]
