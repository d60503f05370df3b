"""``vinelm store info`` says what the rows showed."""

import json

import pytest

from vinelm.cli.main import main
from vinelm.requests.workflow import Request
from vinelm.traces import ObservationStore
from vinelm.traces.store.shown import ShownRows, SignalRecord
from vinelm.traces.testing import a_row, an_identity


@pytest.fixture
def info(capsys):
    """What the command prints, on one line."""

    def run(path, *options):
        assert main(["store", "info", str(path), *options]) == 0
        return " ".join(capsys.readouterr().out.split())

    return run


def made(path, record, **changes):
    with ObservationStore.create(path, an_identity()) as store:
        store.register([Request("q1", {})])
        store.add(a_row("q1", ("small",), signal="rows", answer="1", answer_digest="d", answer_class=0))
        store.add(a_row("q1", ("large",), signal="empty", is_continued=True, **changes))
        if record is not None:
            ShownRows(store).set_classes({}, record)
    return path


def test_it_says_what_was_shown_and_what_is_wrong_with_it(tmp_path, info):
    record = SignalRecord(signal="s", answer=("sql",), rows=2, compared=10, intransitive=3, unknown=4, without_state=5)
    text = info(made(tmp_path / "s.db", record))
    assert "1 rows lie below an answer that the workflow's own check passed." in text
    assert "Signal: empty 1, rows 1." in text
    assert "Answers (sql) of 1 rows." in text
    assert "agree is not transitive: 3 of 10 pairs of answers contradict the classes." in text
    assert "The classes of 4 requests cannot be computed" in text
    assert "5 rows show less than is declared" in text
    facts = json.loads(info(tmp_path / "s.db", "--json"))
    assert (facts["signals"], facts["continued"], facts["shown"]["intransitive"]) == ({"empty": 1, "rows": 1}, 1, 3)


def test_classes_that_are_behind_are_said_to_be(tmp_path, info):
    text = info(made(tmp_path / "s.db", SignalRecord(answer=("sql",), rows=1)))
    assert "Their classes are not up to date: the next `vinelm profile` computes them, without a call." in text


def test_without_a_declaration_nothing_is_said(tmp_path, info):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store:
        store.register([Request("q1", {})])
        store.add(a_row("q1", ("small",)))
    assert "Signal" not in info(tmp_path / "s.db")
    assert "Answers" not in info(tmp_path / "s.db")
