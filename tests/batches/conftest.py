"""The app of docs/examples with a trie, made once: 60 requests on simulated models."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit.servers.postgres_server import postgres_server, postgres_server_url, postgres_url

import vinelm

__all__ = ["app", "postgres_server", "postgres_server_url", "postgres_url", "project"]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NAMES = ("my_app.py", "questions.jsonl", "models.toml")


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A folder with the app and t.vine; not to be written to."""
    folder = tmp_path_factory.mktemp("project")
    for name in NAMES:
        shutil.copy(EXAMPLES / name, folder / name)
    questions = (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "questions.jsonl").write_text("".join(questions[:60]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.delitem(sys.modules, "my_app", raising=False)  # of other tests, in other folders
        workflow = vinelm.load_workflow("my_app:workflow")
        vinelm.profile(replace(workflow, requests=workflow.requests[:40]), "models.toml", "s.db", coverage=0.3)
        vinelm.save_trie("t.vine", vinelm.estimate("s.db"))
    return folder


@pytest.fixture
def app(project, tmp_path, monkeypatch):
    """A copy of it, which is the working folder."""
    for name in (*NAMES, "t.vine"):
        shutil.copy(project / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_app", raising=False)
    return tmp_path
