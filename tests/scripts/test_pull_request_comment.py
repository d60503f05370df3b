"""The comment of the GitHub Action: what is written where, with event files and a GitHub that is a list."""

import io
import json
import re
import subprocess
import sys
import threading
import urllib.error
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pull_request_comment as script
import pytest
import yaml

from vinelm.trie.verdict import ComparedPlan, Verdict

ROOT = Path(__file__).parents[2]
APP = "app.py:graph"
EVENT = {
    "number": 7,
    "pull_request": {"number": 7, "head": {"sha": "0123456789abcdef"}},
    "repository": {"full_name": "acme/app"},
}
PLAN = ComparedPlan(
    policy="paths",
    cost_usd=0.0004,
    gain=0.012,
    gain_low=-0.004,
    gain_high=0.028,
    best_low=-0.006,
    best_high=0.03,
    saved_usd=0.0016,
    saved_low=0.001,
    saved_high=0.002,
    is_same=False,
    is_identified=True,
    words="write gpt-5-mini, retry gpt-5",
    models=("gpt-5-mini", "gpt-5"),
)
FOUND = Verdict(models={"write": "gpt-5"}, accuracy=0.81, cost_usd=0.002, requests=120, rows=300, spent_usd=0.73, plans=(PLAN,))
RESULT = {
    "verdict": FOUND.to_dict(),
    "report": "report/report.html",
    "objective": {"maximize": "accuracy"},
    "is_simulated": False,
    "spent_usd": 0.73,
    "requests": 120,
}


class GitHub:
    """Comments of one pull request."""

    def __init__(self, *comments):
        self.comments = [{"id": i, "user": {"login": login}, "body": body} for i, (login, body) in enumerate(comments)]
        self.asked = []

    def __call__(self, method, url, body):
        self.asked.append((method, url))
        if method == "GET":
            page = int(re.search(r"[?&]page=(\d+)", url)[1])
            return self.comments[100 * (page - 1) : 100 * page]
        if method == "PATCH":
            self.comments[int(url.rpartition("/")[2])]["body"] = body["body"]
        else:
            self.comments.append({"id": len(self.comments), "user": {"login": "github-actions[bot]"}, "body": body["body"]})
        return {}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the script as the action does; what it wrote into the summary and the outputs."""

    def run(github, result=RESULT, event=EVENT, *more):
        for name in ("summary", "output"):
            (tmp_path / name).write_text("")
        (tmp_path / "event.json").write_text(json.dumps(event))
        (tmp_path / "try.json").write_text(result if isinstance(result, str) else json.dumps(result))
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
        monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
        monkeypatch.setenv("GITHUB_TOKEN", "ghs_secret")
        monkeypatch.setenv("GITHUB_API_URL", "https://api.example")
        monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example")
        monkeypatch.setenv("GITHUB_REPOSITORY", "acme/app")
        monkeypatch.setenv("GITHUB_RUN_ID", "42")
        assert script.main([str(tmp_path / "try.json"), "--app", APP, *more], ask=github) == 0
        return (tmp_path / "summary").read_text(), (tmp_path / "output").read_text()

    return run


def test_the_card_has_the_verdict_the_figures_and_what_they_rest_on(run):
    github = GitHub()
    summary, output = run(github)
    (comment,) = github.comments
    assert comment["body"] == summary
    assert output == "verdict=switch\n"
    lines = summary.splitlines()
    assert lines[1] == "### VineLM on `app.py:graph`: switch"
    assert any(line.startswith("SWITCH: write gpt-5-mini, retry gpt-5. It costs \\$0.4 instead of \\$2.00") for line in lines)
    assert "| today (gpt-5) | 81.0 % | 2 |  |" in lines
    assert "| write gpt-5-mini, retry gpt-5 | +1.2 points (-0.6 to +3.0) | 0.4 | -80 % |" in lines
    assert lines[-1] == (
        "<sub>120 requests, $0.73 spent, commit 012345678, [the run](https://github.example/acme/app/actions/runs/42)</sub>"
    )


def test_its_own_earlier_comment_is_updated_and_no_other(run):
    ours = script.marker(APP)
    github = GitHub(
        *[("somebody", "words")] * 120,
        ("somebody", f"{ours}\nnot ours"),
        ("github-actions[bot]", f"{script.marker('other.py:graph')}\nanother application's"),
        ("github-actions[bot]", f"{ours}\nold"),
    )
    run(github)
    assert len(github.comments) == 123
    assert "switch" in github.comments[122]["body"]
    assert github.comments[120]["body"].endswith("not ours")
    assert github.comments[121]["body"].endswith("another application's")
    assert [method for method, _ in github.asked] == ["GET", "GET", "PATCH"]
    assert github.asked[0][1].startswith("https://api.example/repos/acme/app/issues/7/comments?")


def test_fields_that_are_new_or_missing_leave_the_rest(run):
    newer = {**RESULT, "verdict": {**RESULT["verdict"], "accuracy": None, "new": 1}, "card": [1, {"a": None}]}
    summary, output = run(GitHub(), newer)
    assert "SWITCH: write" in summary
    assert "| --- |" not in summary
    assert output == "verdict=switch\n"
    summary, output = run(GitHub(), {"verdict": {"advice": "not enough data"}, "requests": 30})
    assert output == "verdict=not enough data\n"
    assert "30 requests" in summary
    odd = {
        "accuracy": 0.5,
        "cost_usd": 0.0,
        "plans": [3, {}, {"gain": 0.1, "saved_usd": float("inf")}, {**asdict(PLAN), "words": "", "models": []}],
    }
    summary, _ = run(GitHub(), {"verdict": odd, "requests": "many", "spent_usd": True})
    assert "| today | 50.0 % | 0 |  |" in summary
    assert "| a plan | +1.2 points" in summary


def test_a_failure_says_its_kind_and_never_its_message(run):
    error = {"kind": "dataset", "message": "qa.csv:3: 'the patient said sk-live-123'", "hint": "use `--column`", "exit_code": 2}
    summary, output = run(GitHub(), {"error": error})
    assert output == "verdict=error\n"
    assert "failed (dataset)" in summary
    assert "What may help: use \\`--column\\`." in summary
    assert "patient" not in summary
    assert "sk-live" not in summary


@pytest.mark.parametrize("printed", ["", "not JSON", "[]", '{"a": '])
def test_a_command_that_printed_nothing_is_a_failure(run, printed):
    summary, output = run(GitHub(), printed)
    assert output == "verdict=error\n"
    assert "the log of this run says why" in summary


def test_what_names_hold_is_text_and_no_markup(run):
    hostile = "a|b\n# c <img src=x> @everyone [x](https://evil.example) `code`"
    plan = {**asdict(PLAN), "words": hostile}
    odd = {"sentence": hostile, "advice": "switch\nset-output", "models": {"write": hostile}, "plans": [plan]}
    summary, output = run(GitHub(), {**RESULT, "verdict": {**RESULT["verdict"], **odd}})
    assert output == "verdict=unknown\n"
    for live in ("<img", "@everyone", r"\[x\]\(", "# c ", r"\|b", "`code"):
        assert re.search(rf"(?<!\\){live}", summary) is None


def test_other_events_and_no_comment_have_the_summary_alone(run, capsys):
    github = GitHub()
    summary, _ = run(github, RESULT, {"ref": "refs/heads/main", "repository": {"full_name": "acme/app"}})
    assert "switch" in summary
    run(github, RESULT, EVENT, "--no-comment")
    assert github.asked == []
    assert "ghs_secret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.HTTPError("https://api.example", 403, "no", {}, io.BytesIO()),
        urllib.error.URLError(TimeoutError("ghs_secret")),
    ],
)
def test_a_github_that_refuses_is_a_warning_without_the_token(run, capsys, error):
    def refuses(*_):
        raise error

    summary, _ = run(refuses)
    assert "switch" in summary
    said = capsys.readouterr().out
    assert said.startswith("::warning::no comment")
    assert "ghs_secret" not in said


def test_the_token_goes_with_each_request():
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append((self.headers["Authorization"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(201)
            self.end_headers()
            self.wfile.write(b'{"id": 3}')

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        found = script.api("ghs_secret")("POST", f"http://127.0.0.1:{server.server_port}/x", {"body": "b"})
        thread.join()
    assert found == {"id": 3}
    assert heard == [("Bearer ghs_secret", {"body": "b"})]


def test_the_action_gives_the_inputs_as_variables_and_documents_each():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    for name, one in action["inputs"].items():
        assert one["description"], name
    steps = action["runs"]["steps"]
    for step in steps:
        assert "${{" not in step["run"], step["name"]
        assert step["shell"] == "bash"
    used = set(re.findall(r"inputs\.([a-z-]+)", json.dumps(steps)))
    assert used == set(action["inputs"])
    assert set(re.findall(r"steps\.(\w+)\.", json.dumps(action))) == {step["id"] for step in steps if "id" in step}


def test_every_option_that_the_action_gives_is_one_of_the_command():
    from vinelm.cli.try_app import command

    known = {name for param in command.params for name in param.opts}
    script = next(
        step["run"] for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if step.get("id") == "try"
    )
    assert set(re.findall(r"--[a-z-]+", script)) <= known


@pytest.mark.parametrize("path", [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / "action.yml"], ids=lambda path: path.name)
def test_actions_are_pinned_to_a_version(path):
    text = path.read_text()
    assert isinstance(yaml.safe_load(text), dict)
    for used in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", used)
    if path.name == "ci.yml":
        assert ".ci/run" in text


def test_the_steps_give_the_command_its_words_one_by_one(tmp_path):
    """What an input holds is a word of the command line; an exit code is kept for the last step."""
    stub = tmp_path / "bin" / "vinelm"
    stub.parent.mkdir()
    stub.write_text(f'#!{sys.executable}\nimport json, sys\nprint(json.dumps({{"words": sys.argv[1:]}}))\nsys.exit(2)\n')
    stub.chmod(0o755)
    steps = {step.get("id"): step for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]}
    given = {
        "APP": "app.py:graph",
        "DATASET": "$(touch hacked); a b.csv",
        "LABEL_FIELD": "",
        "BUDGET_USD": "1",
        "MODELS": "`id`",
        "TODAY": "",
        "ARGUMENTS": "--apply  --keep-going *",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(tmp_path / "out"),
        "PATH": f"{stub.parent}:/usr/bin:/bin",
    }
    line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps["try"]["run"]]
    subprocess.run(line, cwd=tmp_path, env=given, check=True, timeout=60)
    outputs = dict(text.split("=", 1) for text in (tmp_path / "out").read_text().splitlines())
    assert outputs["code"] == "2"
    assert json.loads(Path(outputs["json"]).read_text())["words"] == [
        "try",
        "app.py:graph",
        "--budget-usd",
        "1",
        "--quiet",
        "--json",
        "--dataset",
        "$(touch hacked); a b.csv",
        "--models",
        "`id`",
        "--apply",
        "--keep-going",
        "*",
    ]
    assert not (tmp_path / "hacked").exists()
