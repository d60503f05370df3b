"""`vinelm reprice`, `vinelm reprice`, `diff` and `export`: what a user types, and what bad input says."""

import json
import random
import re

import pytest

from vinelm.cli.main import main
from vinelm.requests.workflow import Request
from vinelm.traces import ObservationStore
from vinelm.traces.testing import a_row, an_identity
from vinelm.vinefile import load_trie

ENTRY = (
    '[[model]]\nname = "{name}"\nprovider = "openai"\nmodel = "gpt-4o"\n'
    'price = {{ input = {price}, output = {price}, source = "what if", as_of = 2026-02-02 }}\n'
)


def write_catalog(path, **price):
    path.write_text("".join(ENTRY.format(name=name, price=rate) for name, rate in price.items()))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of 60 requests with tokens, its trie, and catalogs."""
    folder = tmp_path_factory.mktemp("made")
    rng = random.Random(4)
    with ObservationStore.create(folder / "s.db", an_identity()) as store:
        store.register([Request(f"q{i}", {}) for i in range(60)])
        rows = []
        for i in range(60):
            size, prefix = rng.randint(500, 2000), ()
            for _ in range(rng.randint(1, 3)):
                prefix = (*prefix, rng.choice(("small", "large")))
                right = rng.random() < (0.4 if prefix[-1] == "small" else 0.7)
                usd = size * 1.0 / 1e6 + size * 2.0 / 1e6
                rows.append(a_row(f"q{i}", prefix, success=right, stopped=right, cost_usd=usd, tokens_in=size, tokens_out=size))
                if right:
                    break
        store.add_many(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["estimate", "s.db", "--no-check"]) == 0
    write_catalog(folder / "new.toml", small=1.5, large=0.3)
    write_catalog(folder / "half.toml", small=1.5)
    return folder


@pytest.fixture(autouse=True)
def there(made, monkeypatch, tmp_path):
    monkeypatch.chdir(made)
    monkeypatch.setenv("COLUMNS", "80")


def said(capsys, *args, code=0):
    capsys.readouterr()
    assert main([*map(str, args)]) == code
    found = capsys.readouterr()
    return found.err if code == 2 else found.out


def test_a_store_and_a_trie_are_repriced_alike(made, tmp_path, capsys):
    text = said(capsys, "reprice", "s.db", "--models", "new.toml", "-o", tmp_path / "r.db")
    assert re.search(r"large +yes +\d+ +\$\S+ +\$\S+ +-80.0 %", text)
    assert "The ledger did not" in text
    assert max(map(len, text.splitlines())) <= max(80, len(str(tmp_path)) + 40)
    assert said(capsys, "store", "info", tmp_path / "r.db").count("count at a later price") == 1
    said(capsys, "estimate", tmp_path / "r.db", "--no-check", "-o", tmp_path / "r.vine")
    text = said(capsys, "reprice", "s.vine", "--store", "s.db", "--models", "new.toml", "-o", tmp_path / "t.vine")
    assert "New prices" in text
    assert "Both were estimated from the same answers" in text
    one, other, before = (load_trie(tmp_path / "t.vine"), load_trie(tmp_path / "r.vine"), load_trie("s.vine"))
    assert one.meta["repriced"] == ["small", "large"]
    assert one.cost_usd.tolist() == other.cost_usd.tolist()
    assert one.accuracy.tolist() == before.accuracy.tolist()
    depth_one = {one.trie.models[int(one.trie.model[n])]: one.cost_usd[n] / before.cost_usd[n] for n in one.trie.levels[1]}
    assert depth_one == pytest.approx({"small": 1.0, "large": 0.2}, rel=1e-4)  # 3 dollars before; the fit shares among models


def test_json_has_everything(made, tmp_path, capsys):
    found = json.loads(said(capsys, "reprice", "s.db", "--models", "new.toml", "-o", tmp_path / "r.db", "--json"))
    assert [model["name"] for model in found["models"]] == ["small", "large"]
    args = ("--store", "s.db", "--models", "new.toml", "-o", tmp_path / "t.vine", "--json")
    found = json.loads(said(capsys, "reprice", "s.vine", *args))
    assert found["trie"] == str(tmp_path / "t.vine")
    assert found == {"trie": found["trie"], **json.loads(said(capsys, "trie", "diff", "s.vine", tmp_path / "t.vine", "--json"))}
    assert found["has_same_answers"]
    assert found["metrics"]["cost"]["moved"]
    assert found["metrics"]["accuracy"]["moved"] == []
    assert set(found["prices"]) == {"large"} | {"small"}


def test_a_trie_and_itself_do_not_differ(capsys):
    text = said(capsys, "trie", "diff", "s.vine", "s.vine")
    assert "0 of 14 paths differ" in text
    assert "No plan changes" in text


def test_export_writes_a_row_per_path(tmp_path, capsys):
    assert "wrote 14 rows" in said(capsys, "export", "s.vine", "-o", tmp_path / "t.csv")
    assert len((tmp_path / "t.csv").read_text(encoding="utf-8").splitlines()) == 15


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("reprice", "s.db", "--models", "half.toml", "-o", "{}/x.db"), "no price for the model 'large'"),
        (("reprice", "s.db", "--models", "none.toml", "-o", "{}/x.db"), "none.toml"),
        (("reprice", "none.db", "--models", "new.toml", "-o", "{}/x.db"), "no such store"),
        (("reprice", "s.db", "--models", "new.toml", "-o", "s.db"), "exists already"),
        (
            ("reprice", "s.vine", "--store", "s.db", "--models", "half.toml", "-o", "{}/x.vine"),
            "no price for the model",
        ),
        (("reprice", "s.vine", "--store", "s.db", "--models", "new.toml", "-o", "s.vine"), "this is the input file"),
        (("reprice", "s.vine", "--store", "s.db", "--models", "new.toml", "-o", "new.toml"), "not a trie file"),
        (("reprice", "s.db", "--store", "s.db", "--models", "new.toml", "-o", "{}/x.vine"), "not a trie file"),
        (("trie", "diff", "s.vine", "none.vine"), "no such trie file"),
        (("export", "s.vine", "-o", "{}/t.txt"), "unknown table format"),
        (("export", "s.vine", "-o", "s.vine"), "this is the input file"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(made, tmp_path, capsys, args, words):
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    line = said(capsys, *(str(arg).format(tmp_path) for arg in args), code=2)
    assert words in line
    assert line.count("\n") == 1
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    assert not list(tmp_path.iterdir())


def test_a_store_that_has_grown_since_is_refused(made, tmp_path, capsys):
    (tmp_path / "grown.db").write_bytes((made / "s.db").read_bytes())
    with ObservationStore.open(tmp_path / "grown.db") as store:
        store.register([Request("late", {})])
        store.add(a_row("late", ("large",), success=True, cost_usd=0.003, tokens_in=1000, tokens_out=1000))
    args = ("--store", tmp_path / "grown.db", "--models", "new.toml", "-o", tmp_path / "x.vine")
    line = said(capsys, "reprice", "s.vine", *args, code=2)
    assert "was not estimated from the rows that" in line
    assert not (tmp_path / "x.vine").exists()
