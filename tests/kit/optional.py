"""Libraries that are not always installed."""

from importlib.util import find_spec

import pytest


def needs(*libraries):
    """Skip the test file without them. Imports none: every worker collects every file, and an SDK takes seconds."""
    for library in libraries:
        parent = library.partition(".")[0]
        if find_spec(parent) is None or find_spec(library) is None:
            pytest.skip(f"{library} is not installed", allow_module_level=True)
