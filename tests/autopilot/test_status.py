"""``vinelm autopilot status`` and ``vinelm label`` on the store of a service."""

import json
import shutil

import pytest
from kit.worlds.piloted import Service
from kit.worlds.replays import answered, differs, models, truth, wrong

from vinelm.autopilot.status import status_of
from vinelm.cli.main import main
from vinelm.errors import StoreError


def test_the_status_says_what_is_proven_and_saved(proven_store, tmp_path, capsys):
    for file in proven_store.parent.iterdir():
        shutil.copy(file, tmp_path)
    path = tmp_path / proven_store.name
    assert main(["autopilot", "status", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (step,) = found["steps"]
    assert (step["step"], step["today"], step["plan"], step["share"]) == ("grade", "big", "nano", 0.95)
    assert step["saved_usd"] == pytest.approx(step["usd"], rel=0.05)  # nano costs half of big
    assert found["learning_usd"] > 0.0
    assert found["waiting"] == 0
    assert main(["autopilot", "status", str(path), "--report", str(tmp_path / "status.html")]) == 0
    said = capsys.readouterr().out
    assert "serves all but the 5 % that are compared: nano." in said
    assert max(map(len, said.splitlines())) <= 120
    page = (tmp_path / "status.html").read_text(encoding="utf-8")
    assert "Proven plans serve 1 of 1 steps" in page
    assert "that are compared: nano." in page
    assert "Question 1" not in page
    assert main(["autopilot", "status", str(path), "--report", str(path)]) == 2
    assert "name another file" in capsys.readouterr().err


def test_questions_wait_and_a_label_counts(tmp_path):
    def mixed(number):
        return wrong(number) if differs(number, 0.02) else truth(number)

    path = tmp_path / "pilot.db"
    service = Service(path, models(nano=mixed, big=truth), max_loss=5.0)
    service.ask(range(500))
    service.look()
    service.look()
    assert status_of(path).waiting > 0
    said = answered(path)
    service.look()
    assert said
    assert status_of(path).answered == said
    service.vine.close()


def test_what_is_no_store_of_an_autopilot_is_refused(tmp_path, capsys):
    with pytest.raises(StoreError, match="no such store"):
        status_of(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no store")
    assert main(["autopilot", "status", str(tmp_path / "text.db")]) == 2
