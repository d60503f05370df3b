"""The application and the store of before the house was rebuilt, in ``before/``."""

import shutil
import sys
from pathlib import Path

import pytest

from vinelm.workflows import load_workflow

BEFORE = Path(__file__).parent / "before"


@pytest.fixture
def workflow(monkeypatch):
    monkeypatch.syspath_prepend(str(BEFORE))
    monkeypatch.delitem(sys.modules, "my_app", raising=False)
    return load_workflow("my_app:workflow")


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "before.db"
    shutil.copy(BEFORE / "store.sqlite-fixture", path)
    return path
