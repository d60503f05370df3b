"""A replay that is killed goes on where it was, within the same dollars."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from kit.catalogs import local_entries
from kit.worlds.replays import recorded

from scripts.local_openai import local_openai, text_of
from vinelm.replay import replay

WORKERS = 4
BUDGET_USD = 5.0
_RUN = """
import sys
from pathlib import Path
from test_kills import replayed
replayed(Path(sys.argv[1]))
"""


def replayed(folder):
    """Replay against the local server; answers of today's model are those of another one of its models."""
    said = lambda number: text_of({"model": "big", "messages": [{"role": "user", "content": f"Question {number}"}]})  # noqa: E731
    calls = recorded(240, said, system="")
    return replay(calls, folder / "a.db", folder / "models.toml", budget_usd=BUDGET_USD, workers=WORKERS)


def told(record):
    lines = record.read_text().splitlines() if record.exists() else []
    return [json.loads(line) for line in lines]


@pytest.mark.long  # in short: tests/attacks/test_crash_replay.py
def test_a_killed_replay_asks_nothing_again_that_is_paid(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_KEY", "no-key")
    record = tmp_path / "record.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with local_openai(0.02, record=str(record)) as url:
        (tmp_path / "models.toml").write_text(local_entries(url, "nano", "mini", key_env="LOCAL_KEY"))
        for kill_at in (20, 60):
            child = subprocess.Popen([sys.executable, "-c", _RUN, str(tmp_path)], env=environment)
            while sum(line["what"] == "answered" for line in told(record)) < kill_at and child.poll() is None:
                time.sleep(0.01)
            assert child.poll() is None
            child.send_signal(signal.SIGKILL)
            child.wait()
        found = replayed(tmp_path)
        again = replayed(tmp_path)
    began = Counter((line["model"], line["prompt"]) for line in told(record) if line["what"] == "began")
    assert found.spent_usd <= BUDGET_USD
    assert len(began) >= 80
    assert sum(began.values()) <= len(began) + 2 * WORKERS
    assert again.spent_usd == pytest.approx(found.spent_usd)
    assert [step.sentence for step in again.steps] == [step.sentence for step in found.steps]
    assert found.waiting
