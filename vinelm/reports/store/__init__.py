"""Builds the report of a store and its trie, section by section."""

from vinelm.extras import require_extra

require_extra("report", "a report", "matplotlib")  # here, so that it fails before computing anything
