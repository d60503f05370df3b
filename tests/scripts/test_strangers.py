"""The strangers' trial of scripts/first_trial.py: its applications, its simulated models and what it says of them."""

import ast
import importlib.util
import json
import sys
from pathlib import Path

import httpx
import openai
import pytest

from vinelm import read_dataset

SCRIPTS = Path(__file__).parents[2] / "scripts"
PLAIN = SCRIPTS.parent / "apps" / "strangers"


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


def app(name):
    spec = importlib.util.spec_from_file_location(f"stranger_{name}", PLAIN / name / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(request):
    """The local server without its socket."""
    from first_trial_parts.server import _whole
    from first_trial_parts.stranger_answers import StrangerAnswerer

    body = json.loads(request.content)
    return httpx.Response(200, json=_whole(body, StrangerAnswerer(body, 0).reply()))


def test_no_application_knows_vinelm():
    from strangers.cases import CASES

    assert {case.name for case in CASES} == {path.parent.name for path in PLAIN.glob("*/app.py")}
    assert len(CASES) >= 15
    for case in CASES:
        tree = ast.parse((PLAIN / case.name / "app.py").read_text())
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not any("vinelm" in ast.unparse(node) for node in nodes), case.name
        assert ast.get_docstring(tree), case.name


@pytest.mark.parametrize("model", ["tiny", "big"])
def test_an_application_asks_the_simulated_models(model, monkeypatch):
    """The tiny one is as good at sums and bad at products: what a hand-written rule lives on."""
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    module = app("sdk_loop")
    client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", http_client=httpx.Client(transport=httpx.MockTransport(answers)))
    create = client.chat.completions.create
    monkeypatch.setattr(client.chat.completions, "create", lambda **given: create(**{**given, "model": model}))
    monkeypatch.setattr(module, "client", client)
    pairs = [(11 + i, 98 - i) for i in range(60)]
    sums = sum(module.run(f"What is {a} + {b}?") == str(a + b) for a, b in pairs)
    products = sum(module.run(f"What is {a} * {b}?") == str(a * b) for a, b in pairs)
    assert sums >= 52
    assert products >= 52 if model == "big" else products <= 25


def test_the_questions_are_the_same_for_a_seed_and_none_is_profiled_and_served(tmp_path):
    from strangers.cases import CASES, by_hand, write_questions

    for case in CASES[:4]:
        write_questions(case, tmp_path, 0)
        first = (tmp_path / case.dataset).read_bytes()
        write_questions(case, tmp_path, 0)
        assert (tmp_path / case.dataset).read_bytes() == first
        profiled, held_out = (read_dataset(tmp_path / name).requests for name in (case.dataset, f"held_out.{case.suffix}"))
        assert len(profiled) >= 300
        assert len(held_out) == 120
        asked = [{request.data[case.column] for request in requests} for requests in (profiled, held_out)]
        assert not asked[0] & asked[1]
        assert {by_hand(question) for question in asked[0]} == {"tiny", "big"}


def served(rights):
    return [{"right": right, "usd": 0.001, "error": "", "calls": 1} for right in rights]


def test_figures_are_paired_with_todays():
    from first_trial_parts.stranger_figures import is_worse, served_figures

    today = served([True] * 100)
    assert not is_worse(served_figures(today, today, 0.1))
    assert not is_worse(served_figures(served([False] + [True] * 99), today, 0.1))
    assert is_worse(served_figures(served([False] * 10 + [True] * 90), today, 0.1))


def test_a_field_that_no_command_prints_is_null():
    from first_trial_parts.stranger_figures import planned_figures, verdict

    nothing = planned_figures({})
    assert set(nothing.pop("plan_itself").values()) == set(nothing.values()) == {None}
    assert verdict(None) is None
    assert verdict({"advice": "keep", "sentence": "KEEP: a switch saves nothing"}) == "keep"
    assert verdict("Switch: 40 % fewer dollars") == "switch"


def test_a_command_that_fails_ends_one_application_with_its_line(tmp_path, monkeypatch):
    from first_trial_parts.stranger import Stopped, Trial
    from strangers.cases import CASES

    def fails(*command, **given):
        raise Stopped("error: it cannot be read")

    monkeypatch.setattr(Trial, "_vinelm", fails)
    found = Trial(CASES[0], tmp_path, 9, seed=0, budget_usd=0.01, packages=None).run()
    assert (found["stopped_at"], found["line"], found["served"]) == ("init", "error: it cannot be read", None)
    assert sys.modules.get("app") is None


def test_an_application_is_told_in_lines():
    from first_trial_parts.stranger import Stranger
    from first_trial_parts.stranger_figures import best_single, served_figures
    from first_trial_parts.stranger_lines import stranger_line
    from strangers.cases import PRICES

    stopped = Stranger("swarm", stopped_at="check", line="error: no template")
    assert stranger_line(vars(stopped)).endswith("stops at check: error: no template")
    figures = {policy: served_figures(served([True] * 8), served([True] * 8), 0.02) for policy in ("plan", "today", *PRICES)}
    ended = Stranger("debate", served=figures, best_single=best_single(figures, tuple(PRICES)))
    text = stranger_line(vars(ended))
    assert "verdict not printed" in text
    assert "$0.002500 with the calls past VineLM" in text
    assert "best single: tiny" in text
