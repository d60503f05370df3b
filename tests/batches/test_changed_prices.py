"""A price that was edited in the catalog is said not to be the one that plans go by."""

import logging
from pathlib import Path

import pytest

import vinelm
from vinelm.api.application import VineLM
from vinelm.catalog import Catalog
from vinelm.cli.main import main

LINES = {
    "plan": ["plan", "t.vine", "--maximize", "accuracy", "--max-cost-usd", "1", "--accept-optimism"],
    "explain": ["explain", "t.vine", "--maximize", "accuracy"],
    "estimate": ["estimate", "s.db", "-o", "new.vine", "--max-error", "1"],
}
SAID = (
    "prices of {} are not those that plans go by: large $3 in and $15 out per million tokens, now $30 and $15: "
    "`vinelm store reprice TRIE --store DB --models FILE -o NEW` takes the new ones"
)


def edit(before, after):
    path = Path("models.toml")
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.parametrize("command", LINES)
def test_an_edited_price_is_said_in_one_line(app, project, capsys, command):
    if command == "estimate":
        import shutil

        shutil.copy(project / "s.db", "s.db")
    main(LINES[command])
    assert "prices of" not in capsys.readouterr().err
    edit("as_of = 2026-11-20", "as_of = 2026-11-21")  # when it was read charges nothing
    main(LINES[command])
    assert "prices of" not in capsys.readouterr().err
    edit("input = 3.0", "input = 30.0")
    code = main(LINES[command])
    told = capsys.readouterr()
    assert code in (0, 1)
    assert told.err.splitlines().count(SAID.format("models.toml")) == 1
    assert "prices of" not in told.out


@pytest.mark.parametrize(
    "text", ["", "[[model", "[[model]]\nname = 5", "other = 1", "[[model]]\nname = 'large'\nprovider = 'x'"]
)
def test_a_file_that_is_no_such_catalog_says_nothing(app, capsys, text):
    Path("models.toml").write_text(text, encoding="utf-8")
    assert main(LINES["explain"]) == 0
    assert capsys.readouterr().err == ""


def test_a_service_says_it_once_for_each_trie(app, caplog):
    caplog.set_level(logging.WARNING)
    VineLM("models.toml", trie="t.vine", allow_unproven=True)
    assert "prices of" not in caplog.text
    edit("input = 3.0", "input = 30.0")
    vine = VineLM(Catalog.from_file("models.toml"), trie="t.vine", allow_unproven=True)
    assert caplog.messages == [SAID.format("the catalog")]
    vine.load("t.vine")
    assert len(caplog.messages) == 2


def test_the_line_that_is_given_takes_the_new_price(app, project):
    import shutil

    shutil.copy(project / "s.db", "s.db")
    edit("input = 3.0", "input = 30.0")
    assert main(["reprice", "t.vine", "--store", "s.db", "--models", "models.toml", "-o", "new.vine"]) == 0
    old, new = vinelm.load_trie("t.vine"), vinelm.load_trie("new.vine")
    assert new.catalog["large"].price.input == 30.0
    assert new.cost_usd.max() > 1.5 * old.cost_usd.max()
