"""`vinelm plan` promises what can be expected, and refuses an advantage that the choice itself can produce."""

import json

import numpy as np
import pytest

from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import save_trie

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
MODELS = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in "ab"]})
PLAN = ("plan", "t.vine", "--maximize", "accuracy")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_trie(advantage_optimism: float | None, **meta) -> None:
    """The best path is a, b with 80 %; the best single model has 70 %."""
    template = Template((Stage("generate"), Loop((Stage("repair"),), times=1)), "workflow").bind(("a", "b"))
    trie = Trie.from_template(template)
    size, zero = len(trie), np.zeros(len(trie))
    success = np.full(size, 0.7) * (np.arange(size) > 0)
    success[trie.node(("a", "b"))] = 0.8
    if advantage_optimism is not None:
        curve = {"cost_usd": [1.0, 2.0], "accuracy": [0.1, 0.1], "advantage": [advantage_optimism] * 2}
        meta["evidence"] = {"selection": curve}
    save_trie(
        "t.vine",
        AnnotatedTrie(
            trie=trie, template=template, catalog=MODELS, success=success, stop=zero, stop_success=zero,
            cost_usd=np.where(np.arange(size) > 0, 1.0, 0.0), cost_var=zero, latency_s=zero, latency_var=zero,
            accuracy_se=np.full(size, 0.05), meta={"spent_usd": 2.0, "coverage": 0.1, "requests": 50, **meta},
        ),
    )  # fmt: skip


def test_the_promise_is_the_estimate_less_the_optimism(folder, capsys):
    write_trie(0.05)
    assert main([*PLAN]) == 0
    said = capsys.readouterr()
    assert "Promised accuracy: 75.0 % (estimate less 5.0 points of selection optimism)" in said.out
    low, high = 100 * (0.75 - 1.6449 * np.sqrt(0.05**2 + 0.1**2 / 12)), 100 * (0.75 + 1.6449 * np.sqrt(0.05**2 + 0.1**2 / 12))
    assert f"Accuracy interval (90 %): {low:.1f} % to {high:.1f} %" in said.out
    assert said.err == ""
    assert main([*PLAN, "--json"]) == 0
    best, static, single = json.loads(capsys.readouterr().out)["plans"]
    assert best["plan"] == ["a", "b"]
    assert best["accuracy"] == pytest.approx(0.8)
    assert best["promise"]["accuracy"] == pytest.approx(0.75)
    assert best["intervals"]["accuracy"] == pytest.approx([low / 100, high / 100], abs=1e-4)
    assert single["promise"]["optimism"] is None
    assert single["intervals"]["accuracy"] == pytest.approx([0.618, 0.782], abs=0.001)
    assert static["is_feasible"]


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_advantage_that_selection_can_produce_is_refused_with_what_to_buy(folder, capsys, options):
    write_trie(0.2)
    assert main([*PLAN, *options]) == 1
    said = capsys.readouterr()
    assert "a" in said.out  # the plan is shown all the same
    assert said.err.count("\n") == 1
    for words in ("10.0 points over running 'a' alone", "6 paths", "20.0", "about $6 more of profiling", "--accept-optimism"):
        assert words in said.err
    assert main([*PLAN, "--accept-optimism", *options]) == 0
    plan = capsys.readouterr().out
    if options:
        refused = json.loads(said.out)
        assert refused.pop("error")["exit_code"] == 1
        assert json.loads(plan) == refused
    else:
        assert plan == said.out


def test_more_rows_than_there_are_means_more_requests(folder, capsys):
    write_trie(0.2, coverage=0.9)
    assert main([*PLAN]) == 1
    assert "label about 200 requests" in capsys.readouterr().err


def test_a_trie_of_an_older_version_is_planned_as_before(folder, capsys):
    write_trie(None)
    assert main([*PLAN]) == 0
    said = capsys.readouterr().out
    assert "Accuracy interval (90 %): 71.8 % to 88.2 %" in said
    assert "not measured" in said
