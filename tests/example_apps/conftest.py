"""Where the machine has no sandbox for model-written code, the examples' own tests (whose code is ours) run without one."""

from pathlib import Path

import pytest

from examples.coding import boundary


@pytest.fixture(autouse=True)
def _sandbox_if_there_is_one(monkeypatch):
    if boundary.why_unavailable() is not None:
        monkeypatch.setenv(boundary.UNSAFE, "1")


@pytest.fixture(autouse=True)
def _found_by_children(monkeypatch):
    """``examples`` is in no wheel: a process that is started elsewhere finds it by the path."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
