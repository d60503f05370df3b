import sys
import textwrap

import pytest

from vinelm.errors import ConfigError, DatasetError, WorkflowError
from vinelm.requests.workflow import Workflow
from vinelm.workflows import WORKFLOWS, available, load_workflow

OWN = """
from vinelm.template import Stage, Template
from vinelm.requests.workflow import Request, Workflow

def make(dataset=None):
    return Workflow(
        name=f"own {dataset.name if dataset else ''}".strip(),
        template=Template((Stage("answer"),)),
        build=lambda vine: None,
        requests=[Request("1", {"question": "?"})],
        score=lambda request, state: True,
    )

def make_plain():
    return make()

def make_any(**options):
    return make(**options)

def demanding(model, dataset=None):
    return make()

def needs_dataset(dataset):
    return make(dataset)

def broken():
    raise KeyError("temperature")

def exits():
    raise SystemExit("usage: own")

class Box:
    inner = make()

workflow = make()
number = 7
returns_number = lambda: 7
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a module of the user's, as the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "own_flow.py").write_text(OWN)
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "flows.py").write_text(OWN)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("own_"):
            del sys.modules[name]


def test_what_comes_with_the_package(folder):
    pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")
    assert [name for name, _ in available()] == [
        "nl2sql", "nl2sql-2", "mathqa", "graphqa", "support", "code", "exams",
    ]  # fmt: skip
    for name, description in available():
        assert description
        assert "\n" not in description
        workflow = load_workflow(name, dataset=folder if name.startswith("nl2sql") else None)
        assert (workflow.name, len(workflow.requests)) == (
            name,
            {"support": 228, "mathqa": 638, "graphqa": 191, "code": 376, "exams": 600}.get(name, 4),
        )
    with pytest.raises(ConfigError, match="support takes no dataset"):
        load_workflow("support", dataset=folder)


@pytest.mark.parametrize(
    "spec", ["own_flow:workflow", "own_flow:make", "own_flow:make_plain", "own_package.flows:workflow", "own_flow:Box.inner"]
)
def test_a_module_of_the_working_folder(own, spec):
    workflow = load_workflow(spec)
    assert isinstance(workflow, Workflow)
    assert workflow.name == "own"


@pytest.mark.parametrize("spec", ["own_flow:make", "own_flow:make_any", "own_flow:needs_dataset"])
def test_a_dataset_is_handed_on(own, spec):
    assert load_workflow(spec, dataset="rows.jsonl").name == "own rows.jsonl"


@pytest.mark.parametrize(
    ("spec", "dataset", "error", "complaint"),
    [
        (
            "nope",
            None,
            ConfigError,
            "unknown workflow 'nope': use one of nl2sql, nl2sql-2, mathqa, graphqa, support, code, exams, or",
        ),
        ("", None, ConfigError, "unknown workflow ''"),
        ("own_flow:", None, ConfigError, "unknown workflow 'own_flow:'"),
        (":workflow", None, ConfigError, "unknown workflow ':workflow'"),
        ("own_flow.py:workflow:x", None, ConfigError, "unknown workflow"),
        ("no_such_module:workflow", None, WorkflowError, "no module 'no_such_module': run from its folder"),
        ("own_package.nope:workflow", None, WorkflowError, "no module 'own_package.nope'"),
        ("own_flow:nope", None, WorkflowError, "'own_flow' has no attribute 'nope': it has workflow"),
        ("own_package:nope", None, WorkflowError, "no attribute 'nope': name a Workflow"),
        ("own_flow:Box.nope", None, WorkflowError, "no attribute 'Box.nope': it has inner"),
        ("own_flow:number", None, WorkflowError, "own_flow:number is a int, not a Workflow"),
        ("own_flow:returns_number", None, WorkflowError, "own_flow:returns_number returns a int, not a Workflow"),
        ("own_flow:demanding", None, WorkflowError, "requires the arguments model"),
        ("own_flow:needs_dataset", None, WorkflowError, "requires the arguments dataset"),
        ("own_flow:broken", None, WorkflowError, "creating the workflow fails: KeyError: 'temperature'"),
        ("own_flow:exits", None, WorkflowError, "creating the workflow fails: SystemExit: usage: own"),
        ("own_flow:workflow", "rows.jsonl", DatasetError, "rows.jsonl: cannot read the dataset: no such file"),
        ("own_flow:make_plain", "rows.jsonl", DatasetError, "rows.jsonl: cannot read the dataset: no such file"),
    ],
)
def test_one_line_says_what_is_wrong(own, spec, dataset, error, complaint):
    with pytest.raises(error) as caught:
        load_workflow(spec, dataset=dataset)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library': install its dependencies"),
        ("1 / 0", "ZeroDivisionError: division by zero: fix the module"),
        ("def f(:", "SyntaxError: "),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("raise SystemExit", "SystemExit: fix the module"),
        ("from vinelm.errors import DatasetError\nraise DatasetError('rows.jsonl:3: bad')", "rows.jsonl:3: bad"),
    ],
)
def test_a_module_that_does_not_import(own, source, complaint):
    (own / "own_broken.py").write_text(textwrap.dedent(source))
    with pytest.raises((WorkflowError, DatasetError)) as caught:
        load_workflow("own_broken:workflow")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_of_the_package_needs_no_working_folder(folder, monkeypatch):
    before = list(sys.path)
    load_workflow("nl2sql", dataset=folder)
    assert sys.path == before
    assert all(":" in target for target, _ in WORKFLOWS.values())
