"""Files that somebody names: what is no regular file is refused at once, with one line and exit code 2."""

import os
from datetime import date

import pytest

from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.errors import ConfigError, TrieFileError
from vinelm.io.reading import open_regular, read_text
from vinelm.vinefile import load_trie


@pytest.fixture(params=["pipe", "/dev/zero", "folder", "socket"])
def odd(request, tmp_path):
    path = tmp_path / "odd"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
            yield str(path)
            return
    yield request.param if request.param == "/dev/zero" else str(path)


def test_what_is_no_file_is_refused_and_does_not_wait(odd):
    with pytest.raises(OSError, match=r"Not a regular file|directory|No such device"):
        open_regular(odd)
    with pytest.raises(TrieFileError, match="cannot read the trie"):
        load_trie(odd)
    with pytest.raises(ConfigError, match="cannot read the catalog"):
        Catalog.from_file(odd)


@pytest.mark.parametrize(
    "line",
    [
        ["plan", "ODD", "--maximize", "accuracy"],
        ["explain", "ODD", "--maximize", "accuracy"],
        ["trie", "show", "ODD"],
        ["profile", "nl2sql", "--models", "ODD", "--dry-run"],
        ["profile", "nl2sql", "--dataset", "ODD", "--dry-run"],
        ["profile", "nl2sql", "--store", "ODD", "--budget-calls", "1"],
        ["estimate", "ODD", "-o", "x.vine"],
        ["store", "info", "ODD"],
        ["check", "--models", "ODD"],
    ],
    ids=" ".join,
)
def test_commands_say_so_in_one_line(odd, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([word.replace("ODD", odd) for word in line]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert told[-1].startswith("error: ")
    assert "unexpected" not in told[-1]


def test_a_text_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(b"x" * 2000)
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_text(path, most_bytes=1000)


ENTRY = {"name": "m", "provider": "simulated", "model": "m"}
PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2026-01-01"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout_s": 1e10}, {"timeout_s": True}, {"timeout_s": "5"}, {"timeout_s": date(2026, 1, 1)},
        {"timeout_s": float("nan")},
        {"max_tokens": True}, {"max_tokens": 10**12}, {"max_tokens": 1.5}, {"name": 5}, {"trusted_counts": 1},
        {"options": {"a": date(2026, 1, 1)}}, {"options": {"a": [{"b": date(2026, 1, 1)}]}}, {"options": {"a": float("inf")}},
        {"price": {**PRICE, "input": True}}, {"price": {**PRICE, "output": "1"}},
        {"price": {**PRICE, "call": date(2026, 1, 1)}},
    ],
    ids=str,
)  # fmt: skip
def test_values_of_a_catalog_are_of_their_kind(wrong):
    with pytest.raises(ConfigError, match="bad value for") as told:
        Catalog.from_dict({"model": [{**ENTRY, "price": PRICE, **wrong}]})
    assert "\n" not in str(told.value)


def test_a_store_behind_a_link_is_the_store_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = ["profile", "nl2sql", "--limit", "4", "--preset", "paper-2", "--isolation", "inline", "--quiet", "--json"]
    os.symlink("real.db", "link.db")
    for calls in ("3", "5"):
        assert main([*line, "--store", "link.db", "--budget-calls", calls]) == 3
    assert (tmp_path / "link.db").is_symlink()
    assert main(["store", "info", "real.db"]) == 0
    assert "5 rows" in capsys.readouterr().out
