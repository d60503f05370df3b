"""What `vinelm estimate` says of its own worth, and when it refuses."""

import json
import random
from dataclasses import replace

import pytest

from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.vinefile import load_trie

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
MODELS = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in "ab"]})
RETRY = Template((Stage("generate"), Loop((Stage("repair"),), times=1)), "oracle").bind(("a", "b"))
CHAIN = Template((Stage("plan", answerable=False), Stage("solve")), "oracle").bind(("a", "b"))


def make_store(path, template: Template, requests: int) -> None:
    rng = random.Random(0)
    identity = StoreIdentity(
        workflow="toy", template=template.to_dict(), catalog=MODELS.to_dict(), dataset_digest="d", fingerprint={"code": "1"},
        is_simulated=True,
    )  # fmt: skip
    with ObservationStore.create(path, identity) as store:
        store.register_digests({f"q{i}": str(i) for i in range(500)})
        for i in range(requests):
            first, second = rng.choice("ab"), rng.choice("ab")
            rows = [(first,), (first, second)]
            for prefix in rows:
                right = rng.random() < 0.5 and template.invocations[len(prefix) - 1].answerable
                store.add(
                    Observation(
                        request_id=f"q{i}", prefix=prefix, stage=template.invocations[len(prefix) - 1].name, success=right,
                        stopped=right, cost_usd=0.01, latency_s=1.0,
                    )
                )  # fmt: skip
                if right:
                    break


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_store_without_signals_says_so_and_plans_paths(folder, capsys):
    make_store("s.db", replace(RETRY, stop="workflow"), 100)
    assert main(["estimate", "s.db", "--no-check"]) == 0
    assert "Signals: the rows hold no signal and no answer: declare signal" in capsys.readouterr().out
    assert main(["estimate", "s.db", "--no-check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["signals"] is None
    assert found["paths_only"].startswith("the rows hold no signal and no answer")
    assert load_trie("s.vine").signals is None
    assert main(["plan", "s.vine", "--maximize", "accuracy", "--accept-optimism"]) == 0


def test_the_evidence_is_told_and_travels_with_the_file(folder, capsys):
    make_store("s.db", RETRY, 200)
    assert main(["estimate", "s.db"]) == 0
    said = capsys.readouterr()
    for words in ("Validation", "Best path: ", "Held-out error", "Optimism", "Estimator cascade differs"):
        assert words in said.out
    assert said.err == ""
    assert main(["estimate", "s.db", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["estimator"] == "latent"
    assert found["evidence"]["observations"] == found["observations"]
    assert load_trie("s.vine").meta["evidence"] == found["evidence"]


def test_thin_evidence_exits_1_and_writes_nothing(folder, capsys):
    make_store("s.db", RETRY, 12)
    assert main(["estimate", "s.db", "-o", "t.vine"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: the best path's accuracy")
    assert "would suffice" in said.err
    assert said.err.count("\n") == 1
    assert not (folder / "t.vine").exists()
    assert main(["estimate", "s.db", "-o", "t.vine", "--max-error", "1"]) == 0
    assert main(["estimate", "s.db", "-o", "t.vine", "--no-check"]) == 0


def test_a_chain_under_the_oracle_stop_is_warned_of(folder, capsys):
    make_store("s.db", CHAIN, 200)
    assert main(["estimate", "s.db"]) == 0
    assert "warning: stage 'plan' produces no answer" in capsys.readouterr().err


def test_a_threshold_out_of_range_is_refused(folder, capsys):
    make_store("s.db", RETRY, 12)
    assert main(["estimate", "s.db", "--max-error", "15"]) == 2
    said = capsys.readouterr().err
    assert "--max-error is 15" in said
    assert "--max-error" in said


def test_a_threshold_that_nothing_is_compared_with_is_refused(folder, capsys):
    make_store("s.db", RETRY, 12)
    assert main(["estimate", "s.db", "--max-error", "0.3", "--no-check"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: max_error has no effect without check")
    assert said.count("\n") == 1
    assert not (folder / "s.vine").exists()
