"""The way of docs/replay.md: a trace, where its money goes, cheaper models behind a server, questions, and a verdict."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vinelm.cli.main import main
from vinelm.replay.kept import opened
from vinelm.replay.labelling.desk import Desk

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A trace, and the page's stand-in for real models on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = [sys.executable, str(ROOT / "scripts" / "simulated_traces.py"), "--form", "langfuse", "--calls", "1500"]
    subprocess.run([*made, str(tmp_path / "traces.jsonl.gz")], check=True)
    server = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "answers_like_the_trace.py"), "traces.jsonl.gz", str(port)], cwd=tmp_path
    )
    try:
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        catalog = (EXAMPLES / "replay_models.toml").read_text(encoding="utf-8").replace(":8790/", f":{port}/")
        (tmp_path / "models.toml").write_text(catalog, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield
    finally:
        server.kill()
        server.wait()


@pytest.mark.long  # `make pages` types the lines of the page
def test_from_a_trace_to_a_verdict_with_few_labels(served, capfd):
    line = ["replay", "traces.jsonl.gz", "--models", "models.toml", "--budget-usd", "2", "--max-loss", "4", "--json"]
    assert main(line) == 0
    first = json.loads(capfd.readouterr().out)
    assert first["waiting"] > 0
    given = 0
    for _ in range(5):
        with opened("replay.db") as kept:
            desk = Desk(kept)
            while (asked := desk.next_question("ann")) is not None:
                desk.put_label(asked["question"], "both", "ann")
                given += 1
        assert main(line) == 0
        found = json.loads(capfd.readouterr().out)
        if not found["waiting"]:
            break
    by_step = {step["step"]: step for step in found["steps"]}
    switched = [step for step in by_step.values() if step["advice"] == "switch"]
    assert by_step["grade_documents"] in switched
    assert all(0.0 < step["proven"] <= 0.04 and step["saved"] > 0.5 and step["paste"] for step in switched)
    assert sum(step["labels"] for step in by_step.values()) <= given < 100
    assert 0.0 < found["spent_usd"] <= 2.0
    assert main([*line[:-1], "--quiet"]) == 0  # the same in words
    shown = capfd.readouterr().out
    for step in switched:
        assert f"SWITCH `{step['step']}` to" in shown.replace("\n", " ")
    assert "spent." in shown
    assert main(["replay", "traces.jsonl.gz", "--models", "models.toml"]) == 2
    assert "--budget-usd is missing" in capfd.readouterr().err
