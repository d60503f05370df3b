"""`vinelm gateway` and `vinelm keys`: what can be no gateway is one line, and keys are made, listed and revoked."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from functools import partial

import pytest
from kit.catalogs import local_entries

from vinelm.cli.main import main
from vinelm.gateway import KeyBook


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_UPSTREAM_KEY", "sk-upstream-0123456789ab")
    (tmp_path / "models.toml").write_text(local_entries("http://127.0.0.1:9/v1", "big", key_env="TEST_UPSTREAM_KEY"))
    KeyBook(tmp_path / "empty.db").close()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gateway --models none.toml", "none.toml"),
        ("gateway --models nobody", "neither PROVIDER:MODEL"),
        ("gateway none.vine", "none.vine"),
        ("gateway --evidence e.db", "--evidence has no effect without a plan"),
        ("gateway --allow-unproven", "--allow-unproven has no effect without a plan"),
        ("gateway --maximize accuracy", "an objective has no effect without a plan"),
        ("gateway --step grade", "--step 'grade': write the first words"),
        ("gateway --port 70000", "ports end at 65535"),
        ("gateway --host 0.0.0.0", "vinelm keys add"),
        ("gateway --keys models.toml", "cannot hold the gateway's keys"),
        ("gateway --keys none.db", "--keys none.db: there is no key in it"),
        ("gateway --keys empty.db", "--keys empty.db: there is no key in it"),
        ("gateway --record calls.jsonl --no-record", "--record and --no-record contradict"),
        ("keys list", "there are no keys"),
        ("keys revoke bob", "there are no keys"),
        ("keys add a/b", "letters, digits"),
        ("keys add bob --usd-per-day -1", "--usd-per-day"),
        ("keys add bob --calls-per-min 0", "--calls-per-min"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, line, said):
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert shown.err.strip().count("\n") == 0


def test_a_taken_port_is_one_line(folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["gateway", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


def test_a_key_is_made_listed_and_revoked(folder, capsys):
    assert main(["keys", "add", "alice", "--tenant", "acme", "--usd-per-day", "$5", "--calls-per-min", "60"]) == 0
    key = capsys.readouterr().out.strip()
    assert key.startswith("sk-vinelm-")
    assert main(["keys", "add", "alice"]) == 2
    assert "there is a key 'alice'" in capsys.readouterr().err
    assert main(["keys", "list", "--json"]) == 0
    text = capsys.readouterr().out
    [row] = json.loads(text)["keys"]
    assert (row["name"], row["tenant"], row["daily_usd"], row["is_revoked"]) == ("alice", "acme", 5.0, False)
    assert key not in text
    assert main(["keys", "revoke", "alice"]) == 0
    capsys.readouterr()
    assert main(["keys", "list"]) == 0
    assert "revoked" in capsys.readouterr().out


def test_it_says_where_it_listens_and_ends_with_a_signal(folder):
    command = [sys.executable, "-m", "vinelm.cli.main", "gateway", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A shell has the processes that it starts in the background ignore SIGINT.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, env=environment, preexec_fn=heard, **pipes) as process:  # noqa: PLW1509
        said = process.stdout.readline()
        url = next(word for word in said.split() if word.startswith("http"))
        with urllib.request.urlopen(f"{url}/models", timeout=30) as reply:
            assert [model["id"] for model in json.loads(reply.read())["data"]] == ["big"]
        process.send_signal(signal.SIGINT)
        # What `readline` has read ahead is not in what `communicate` returns.
        rest, errors = process.stdout.read(), process.stderr.read()
    assert "vinelm replay calls.jsonl --dry-run" in " ".join(rest.split())
    assert "there are no keys" in rest
    assert "Traceback" not in errors
    assert process.returncode == 130
