"""Where the machine has no sandbox for model-written code, the examples' own tests (whose code is ours) run without one."""

import pytest

from vinelm.workflows.examples.coding import boundary


@pytest.fixture(autouse=True)
def _sandbox_if_there_is_one(monkeypatch):
    if boundary.why_unavailable() is not None:
        monkeypatch.setenv(boundary.UNSAFE, "1")
