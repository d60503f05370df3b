"""The page about your own app shows the very file that runs here, end to end."""

import re
import subprocess
import sys
from pathlib import Path

import page_outputs as script
import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "my_app.py"
PAGE = (DOCS / "your-own-app.md").read_text()


def vinelm(*arguments, cwd):
    command = [sys.executable, "-m", "vinelm.cli.main", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=None)


def test_the_page_shows_the_file_as_it_is():
    source = EXAMPLE.read_text()
    assert source.strip() in PAGE
    assert len(source.splitlines()) <= 95
    assert "<<" not in PAGE


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder of someone who typed the commands of the page in order, and what each printed."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        (folder / name).write_bytes((EXAMPLE.parent / name).read_bytes())
    commands = [line.removeprefix("$ vinelm ").split() for line in PAGE.splitlines() if line.startswith("$ vinelm ")]
    return folder, [(command[0], vinelm(*command, cwd=folder)) for command in commands]


@pytest.mark.long
def test_every_command_of_the_page_works_in_order(followed):
    folder, printed = followed
    assert [command for command, _ in printed] == ["check", "profile", "estimate", "plan"]
    for _, done in printed:
        assert done.returncode == 0, done.stderr
    (block,) = (block.code for block in script.blocks(PAGE) if block.code.startswith("$ vinelm check"))
    for (command, shown), (_, done) in zip(script.commands(block), printed, strict=True):
        made = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
        assert script.is_shown(shown, made), command
    assert (folder / "my-app.vine").is_file()


@pytest.mark.long
def test_the_plan_over_what_requests_show_is_the_one_on_the_page(followed):
    (code, shown) = re.search(
        r"```python\n(from vinelm import Objective, load_trie.*?)```\n\n```\n(.*?)```", PAGE, re.DOTALL
    ).groups()
    done = subprocess.run([sys.executable, "-c", code], cwd=followed[0], capture_output=True, text=True, check=True)
    assert script.is_shown(shown, done.stdout)


@pytest.mark.long
def test_the_section_about_the_service_runs_as_it_stands(followed):
    code = PAGE.partition("## In the service")[2].partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=followed[0], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer, *explained = done.stdout.splitlines()
    assert answer
    assert any("solve" in line for line in explained)


@pytest.mark.parametrize("max_cost_usd", [0.0001, 0.01])
@pytest.mark.long
def test_the_profiled_app_is_served(followed, monkeypatch, max_cost_usd):
    from vinelm import Catalog, Objective, VineLM
    from vinelm.backends import create_backends
    from vinelm.workflows import load_workflow

    monkeypatch.chdir(EXAMPLE.parent)
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    workflow = load_workflow("my_app:workflow")
    catalog = Catalog.from_file("models.toml")
    vine = VineLM(
        models=catalog,
        backends=create_backends(catalog, workflow=workflow),
        signals=workflow.signals,
    )
    vine.load(followed[0] / "my-app.vine")
    app = workflow.build(vine).compile()
    request = workflow.requests[0]
    objective = Objective(maximize="accuracy", max_cost_usd=max_cost_usd)
    state = app.invoke(workflow.graph_input(request), context=vine.context(objective, request=request))
    assert isinstance(workflow.score(request, state), bool)
    assert "answer" in state
