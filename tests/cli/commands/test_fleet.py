"""``vinelm fleet``: what its commands print, and what they do with bad input; leaders that are killed."""

import json
import signal
import subprocess
import sys
import time

import pytest
from kit.waiting import wait_for
from kit.worlds.fleet_views import QUEUED, view_of

from vinelm.cli.main import main
from vinelm.controller.fleet.live_invocations import InvocationStart, LiveInvocations
from vinelm.controller.fleet.loop.recording import view_line
from vinelm.controller.fleet.member import FleetMember
from vinelm.controller.fleet.redis_link import RedisLink

VIEW = view_of(
    {"session": 1, "state": QUEUED, "deadline_s": 9.0, "rest_s": 2.0},
    {"session": 2, "engine": "large-1", "running_s": 20.0},
    {"session": 3, "engine": "large-2", "running_s": 1.0},
)


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(f"{view_line(VIEW)}\n{view_line(view_of())}\n")
    return path


@pytest.fixture
def serving(redis_url, fleet_name):
    """A process with two live invocations."""
    live = LiveInvocations("p1")
    live.groups = {"large-1": "large", "large-2": "large"}
    slot = live.begin(InvocationStart(1, "acme", "write", 0, "large", 0.0, 1.0, 5.0, 0.25))
    live.queue(slot)
    live.begin(InvocationStart(2, "acme", "write", 0, "large-1", 0.0, rest_usd=0.5))
    member = FleetMember(RedisLink(redis_url, fleet_name), live)
    member.round()
    yield member
    member._link.close()


def test_check_says_what_a_policy_orders(recorded, capsys, monkeypatch):
    monkeypatch.chdir(recorded.parent)  # a long path would be broken at the end of the line
    assert main(["fleet", "run", "--policy", "slack+hol+shares", "--dry-run", recorded.name]) == 0
    out = capsys.readouterr().out
    assert f"slack+hol+shares on 2 views of {recorded.name}, with up to 3" in " ".join(out.split())
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if len(line.split()) == 4}
    assert rows["weights"] == ["1", "0.00", "0.00"]  # the replica that hangs
    assert rows["sessions"][0] == "3"
    assert "a round has 250 ms" in out
    assert "All of its orders can be installed." in out


def test_check_of_a_policy_that_orders_nothing(recorded, capsys, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("from vinelm.controller import Orders\ndef policy(view): return Orders()\n")
    assert main(["fleet", "run", "--policy", str(path), "--dry-run", str(recorded)]) == 0
    assert "It orders nothing." in capsys.readouterr().out


BAD = """
import itertools, time
from vinelm.controller import Orders
count = itertools.count()
def policy(view): return Orders(weights={"eats": 1.0})
def raises(view): return Orders(tenants={name: 1 / len(view) for name in view.tenants})
def moody(view): return Orders(stages={"write": float(next(count))})
def slow(view): time.sleep(1.0)
"""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("policy", "view 1: orders refused: weights: unknown engine 'eats': the fleet's engines are large, large-1"),
        ("raises", "view 2: the policy raised ZeroDivisionError"),
        ("moody", "view 1: a second run on the same view gave other orders"),
        ("slow", "view 1: the policy took more than 0.05 s"),
    ],
)
def test_check_says_what_would_be_refused(recorded, capsys, tmp_path, function, problem):
    path = tmp_path / "mine.py"
    path.write_text(BAD)
    arguments = ["fleet", "run", "--policy", f"{path}:{function}", "--dry-run", str(recorded), "--every", "0.05"]
    assert main(arguments) == 1
    assert problem in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["problems"][0]
    assert f"view {found['view']}: {found['problem']}".startswith(problem)


def test_views_of_a_fleet_that_serves_nothing_try_nothing(capsys, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(view_line(view_of(processes=())) + "\n")
    assert main(["fleet", "run", "--policy", "slack", "--dry-run", str(path)]) == 2
    assert "show no serving process" in capsys.readouterr().err


def test_top_shows_one_table_and_the_same_as_json(serving, redis_url, fleet_name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["fleet", "top", "--redis", redis_url, "--name", fleet_name, "--once"]) == 0
    out = capsys.readouterr().out
    assert f"fleet {fleet_name}: 1 process, 2 live invocations; no orders" in out
    assert max(map(len, out.splitlines())) <= 80
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith(" large")}
    assert rows["large"][1:3] == ["0", "1"]
    assert (rows["large"][-3:], rows["large-1"][1]) == (["1", "$0.250", "1.00"], "1")
    assert main(["fleet", "top", "--redis", redis_url, "--name", fleet_name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["processes"], found["live"], found["leader"], found["version"]) == (1, 2, "", 0)
    assert [(one["engine"], one["running"], one["queued"], one["late"]) for one in found["engines"]] == [
        ("large", 0, 1, 1), ("large-1", 1, 0, 0), ("large-2", 0, 0, 0),
    ]  # fmt: skip


def test_top_says_that_orders_are_of_another_version(serving, redis_url, fleet_name, capsys):
    link = RedisLink(redis_url, fleet_name)
    link._redis.hset(f"{link.prefix}loop:orders", mapping={"version": 3, "all": '{"colours": {"large": 1.0}}'})
    assert main(["fleet", "top", "--redis", redis_url, "--name", fleet_name, "--once"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: not orders of this version of VineLM")
    assert error.count("\n") == 1


def test_top_records_what_check_replays(serving, redis_url, fleet_name, capsys, tmp_path):
    path = tmp_path / "seen.jsonl"
    assert main(["fleet", "top", "--redis", redis_url, "--name", fleet_name, "--record", str(path)]) == 0
    assert main(["fleet", "run", "--policy", "balance", "--dry-run", str(path)]) == 0
    assert "on 1 view" in capsys.readouterr().out


RUN = ["run", "--redis", "redis://localhost:1", "--policy"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["top"], 2, "Missing option '--redis'"),
        (["top", "--redis", "localhost:6379"], 2, "no Redis URL: it begins with redis://, rediss:// or unix:// (--redis)"),
        (["top", "--redis", "redis://:secret@localhost:1"], 1, "the fleet's Redis at localhost:1 does not answer"),
        (["top", "--redis", "redis://localhost:1", "--name", "a b"], 2, "the fleet's name is 'a b'"),
        (["tpo"], 2, "No such command 'tpo'. Did you mean 'top'?"),
        ([*RUN, "slak"], 2, "unknown policy 'slak': did you mean 'slack'?"),
        ([*RUN, "mine.py"], 2, "policy file 'mine.py' does not exist"),
        (
            [*RUN, "hol", "--every", "11"],
            2,
            "period_s is 11: give seconds above 0, up to 10 (--every)",
        ),
        (["top", "--redis", "redis://localhost:1", "--record", "no/where"], 2, "views cannot be recorded in"),
        ([*RUN, "slack", "--dry-run", "nowhere.jsonl"], 2, "recorded views 'nowhere.jsonl' cannot be read: no such file"),
        (["run", "--policy", "slack"], 2, "name the fleet's Redis with --redis"),
        ([*RUN, "slack", "--json"], 2, "--json has no effect without --dry-run"),
        ([*RUN, "slack", "--dry-run", "x", "--every", "0"], 2, "--every"),
    ],
)
def test_bad_input_is_one_line(arguments, code, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VINELM_FLEET", raising=False)
    assert main(["fleet", *arguments]) == code
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said


def started(url, name, *more):
    command = [
        sys.executable,
        "-m",
        "vinelm.cli.main",
        "fleet",
        "run",
        "--redis",
        url,
        "--name",
        name,
        "--policy",
        "slack",
        *more,
    ]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
def test_a_leader_that_is_killed_is_replaced_and_one_that_ends_resigns(redis_url, fleet_name, serving):
    link = RedisLink(redis_url, fleet_name)
    first = started(redis_url, fleet_name)
    wait_for(lambda: link.get("loop:lock"))
    leader = link.get("loop:lock")
    second = started(redis_url, fleet_name)
    time.sleep(2.0)
    assert link.get("loop:lock") == leader
    first.send_signal(signal.SIGKILL)
    wait_for(lambda: link.get("loop:lock") not in (leader, None), 10.0)
    wait_for(lambda: link.fields("loop:orders", "fence")[0] in (b"1", b"2"))
    second.terminate()
    assert second.wait(10) == 0
    assert link.get("loop:lock") is None  # at once
    said = second.stderr.read().splitlines()
    assert said[0].startswith(f"waits: {leader.decode()} leads the fleet")
    assert said[1] == f"leads the fleet '{fleet_name}' with slack"
    first.wait()
    first.stderr.close()
    second.stderr.close()
    link.close()
