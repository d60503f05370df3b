"""The page that a stranger begins with: each kind of application on it is a whole file that `init` reads and `check` passes."""

import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit import agent_packages, openai_like

from vinelm.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = "\n".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("try.md", "shapes.md"))
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
APPLICATIONS = sorted(set(FILES) - {"questions.csv", "models.toml", "workflow.py"})
PACKAGES = {
    "langchain_openai": openai_like,
    "langgraph_supervisor": agent_packages,
    "langgraph_swarm": SimpleNamespace(
        create_handoff_tool=lambda *, agent_name: agent_packages.hand_off(agent_name),
        create_swarm=lambda agents, default_active_agent: agent_packages.create_swarm({one.name: one for one in agents}),
    ),
    "deepagents": SimpleNamespace(
        create_deep_agent=lambda model, tools, subagents: agent_packages.create_deep_agent(model, tools, subagents=subagents)
    ),
}
"""What the files import and VineLM does not need, built as those packages build it."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the page's questions, in which nothing was imported before."""
    for name, package in PACKAGES.items():
        monkeypatch.setitem(sys.modules, name, package)
    for name in ("workflow", *(Path(file).stem for file in APPLICATIONS)):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.csv").write_text(FILES["questions.csv"], encoding="utf-8")
    yield tmp_path
    forget()


def forget():
    """What a new process would not have imported."""
    for name in ("workflow", *(Path(file).stem for file in APPLICATIONS)):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_file_becomes_a_project_that_is_ready(folder, capsys, name):
    (folder / name).write_text(FILES[name], encoding="utf-8")
    target = f"{name}:{'graph' if 'graph = ' in FILES[name] else 'run'}"
    assert target in PAGE or name in ("swarm.py", "deep.py")
    assert main(["init", target, "--dataset", "questions.csv", "--label-field", "answer", "--apply", "--yes"]) == 0
    forget()
    assert "vine.around(" in (folder / name).read_text(encoding="utf-8")
    says_what_a_person_would(folder / "workflow.py")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out


def says_what_a_person_would(workflow):
    """Fill the one TODO without which a graph that waits for a person is not ready, as the page says."""
    [answer] = re.findall(r"`(answer_interrupt=.*,)`", PAGE)
    text = workflow.read_text(encoding="utf-8")
    workflow.write_text(text.replace("# answer_interrupt=lambda request, value: ...,", answer), encoding="utf-8")


def test_a_function_with_an_sdk_is_ready_as_it_stands(folder, capsys):
    for name in ("workflow.py", "models.toml"):
        (folder / name).write_text(FILES[name], encoding="utf-8")
    assert main(["check", "workflow:workflow", "--models", "models.toml"]) == 0
    assert "Ready." in capsys.readouterr().out
