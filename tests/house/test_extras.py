"""The core profiles, judges, plans and serves without the libraries of any extra; what needs one says so in one line."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from vinelm.errors import ConfigError, MissingExtra
from vinelm.extras import required_extra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: needs for name, needs in PROJECT["optional-dependencies"].items() if name not in ("dev", "sglang")}
MODULES = {
    "boto3": "botocore", "google-genai": "google.genai", "math-verify": "math_verify", "opentelemetry-api": "opentelemetry",
    "prometheus-client": "prometheus_client", "pydantic-monty": "pydantic_monty", "xgboost-cpu": "xgboost",
}  # fmt: skip
"""Distributions whose module has another name; the others' is their own."""


def libraries_of(extra):
    """The modules of an extra, and of the extras that it contains."""
    found = set()
    for need in EXTRAS[extra]:
        name, inner = re.match(r"([\w-]+)(?:\[(.*?)\])?", need).groups()
        found |= set().union(*map(libraries_of, inner.split(","))) if name == "vinelm" else {MODULES.get(name, name)}
    return found


LIBRARIES = sorted(libraries_of("all"))


def lacking(libraries):
    """Code that makes these libraries missing, and the network."""
    return f"""
import socket, sys
def refuse(*_):
    raise OSError("no network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {sorted(libraries)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


MADE = """
import numpy as np
from langchain_core.language_models import FakeListChatModel
from vinelm import AnnotatedTrie, Catalog, Objective, VineLM, load_trie, save_trie
from vinelm.controller import Planner
from vinelm.trie import Trie
sys.path.insert(0, {examples!r})
from my_app import build, workflow

chats = {{name: FakeListChatModel(responses=["five", "5"]) for name in ("small", "large")}}
price = {{"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2026-01-01"}}
catalog = Catalog.from_chat_models(chats, prices=dict.fromkeys(chats, price))
template = workflow.template.bind(tuple(catalog))
trie = Trie.from_template(template)
inside = trie.depth > 0
right, stops, seconds = np.where(inside, 0.2 + 0.1 * trie.depth, 0.0), np.where(inside, 0.5, 0.0), np.where(inside, 0.1, 0.0)
made = AnnotatedTrie(trie, template, catalog, right, stops, right / 2, seconds / 100, 0 * seconds, seconds, seconds / 9)
save_trie({file!r}, made)
"""
SERVED = """
vine = VineLM(catalog, on_error="raise")
vine.load({file!r})
assert Planner(load_trie({file!r})).plan(Objective(minimize="cost")).next_model in catalog
app = build(vine).compile()
for objective in (
    Objective(maximize="accuracy", max_cost_usd=1.0),
    Objective(maximize="accuracy", max_latency_s=5.0, risk="mean+sd"),
    Objective(maximize="accuracy", max_latency_s=5.0, risk="dp"),
):
    session = vine.session(objective)
    assert app.invoke({{"question": "2 + 3?"}}, context=vine.context(objective, policy=session))["answer"] == "5"
    assert session.invocations[0].prefix[0] in catalog
"""


def run(code, folder, missing=LIBRARIES):
    paths = {"examples": str(ROOT / "docs" / "examples"), "file": str(folder / "app.vine")}
    command = [sys.executable, "-c", lacking(missing) + code.format(**paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=folder)


def test_every_extra_is_in_all():
    named = re.fullmatch(r"vinelm\[(.*)\]", PROJECT["optional-dependencies"]["all"][0])[1].split(",")
    through_others = {"report"}  # what `demo` brings along
    assert set(named) | through_others | {"all", "ray", "real"} == set(EXTRAS)


COMMANDS = """
import contextlib, io, json
from vinelm.cli.main import main
loaded, found = [*sys.modules], []
from dataclasses import replace
from vinelm.demo import recorded
subject = recorded.SUBJECTS["code"]
def few():
    whole = subject.workflow()
    return replace(whole, requests=whole.requests[:48])
recorded.SUBJECTS["code"] = replace(subject, workflow=few)  # the demo on an eighth of its requests
for line in {lines!r}:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(line.split())
    found.append((line, code, said.getvalue()))
print(json.dumps([loaded, found]))
"""
PLANNING = ["--maximize accuracy --max-latency-s 5", "--minimize cost"]
WORKING = [
    *(f"{command} app.vine {bounds}" for command in ("plan", "explain") for bounds in PLANNING),
    "check my_app:workflow",
    "trie diff app.vine app.vine",
    "profile code --store code.db --isolation inline --coverage 0.02",
    "store check code.db",
    "estimate code.db -o code.vine --no-check",
    "demo --no-open --quiet",
]
REFUSED = {
    "report app.db app.vine": "report",
    "demo sql": "demo",
    "demo support": "demo",
    "demo graphqa": "graph",
    "export app.vine -o app.parquet": "parquet",
}
"""Command to the extra that it names."""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """What serving has imported, and each command with its exit code and its errors, in one process without any extra."""
    done = run(MADE + SERVED + COMMANDS.replace("{lines!r}", repr([*WORKING, *REFUSED])), tmp_path_factory.mktemp("core"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_core_serves_and_plans_without_any_extra(core):
    loaded = set(core[0])
    assert {"langgraph", "vinelm.controller"} <= loaded
    assert not loaded & {*LIBRARIES, "scipy", "sqlalchemy"}  # what only profiles and judges need takes no memory of a service


def test_commands_work_or_name_their_extra_in_one_line(core):
    for line, code, said in core[1]:
        extra = REFUSED.get(line)
        assert code == (2 if extra else 0), (line, said)
        if extra:
            assert said.count("\n") == 1
            assert said.startswith("error: ")
            assert said.endswith(f" pip install 'vinelm[{extra}]'\n"), line


ENOUGH = {
    "report": [
        "profile my_app:workflow --store a.db --isolation inline",
        "estimate a.db -o a.vine",
        "report a.db a.vine -o out",
    ],
    "demo": ["profile nl2sql --limit 40 --store a.db --isolation inline", "estimate a.db -o a.vine --no-check"],
}
"""Extra to commands that need nothing else."""


@pytest.mark.long
@pytest.mark.parametrize("extra", ENOUGH)
def test_one_extra_is_enough_for_its_commands(extra, tmp_path):
    code = "sys.path.insert(0, {examples!r})" + COMMANDS.replace("{lines!r}", repr(ENOUGH[extra]))
    done = run(code, tmp_path, set(LIBRARIES) - libraries_of(extra))
    assert done.returncode == 0, done.stderr
    assert [(line, code) for line, code, _ in json.loads(done.stdout)[1]] == [(line, 0) for line in ENOUGH[extra]]


def test_the_front_door_names_the_extra_too(tmp_path):
    done = run("import vinelm\ntry:\n    vinelm.report\nexcept ImportError as error:\n    print(error)", tmp_path)
    assert done.stdout == "a report needs matplotlib: pip install 'vinelm[report]'\n", done.stderr


def test_a_library_that_is_there_and_broken_says_why():
    says = r"^this needs numpy, which cannot be imported \(cannot import .*\): pip install 'vinelm\[x\]'$"
    with pytest.raises(MissingExtra, match=says), required_extra("x", "this"):
        from numpy import nothing_of_that_name  # noqa: F401


def test_a_missing_extra_is_an_input_error_and_keeps_its_message_when_it_is_nested():
    says = r"^this needs gone: pip install 'vinelm\[inner\]'$"
    nested = required_extra("outer", "all of it"), required_extra("inner", "this")
    with pytest.raises(ConfigError, match=says) as caught, nested[0], nested[1]:
        import gone.below  # noqa: F401
    assert caught.value.code == "missing-extra"
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
