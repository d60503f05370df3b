"""A file of results says what made it: a line that anybody can repeat, and the commit, without paths of this machine."""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import result_files as script


def parsed(script, *words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--table")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--workers", type=int)
    script.add_results_option(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ((), ""),
        (("--data", "{dir}", "--json", "--seeds", "3", "--results", "{file}"), " --data DIR --seeds 3"),
        (("--results={file}", "--data={dir}", "--workers", "2"), " --data=DIR"),
        (("--log", "{file}", "--workers=1", "--seeds=2"), " --log FILE --seeds=2"),
        (("--table", "dear when hard"), " --table 'dear when hard'"),
    ],
)
def test_the_command_leaves_out_paths_and_what_changes_no_figure(tmp_path, words, command):
    words = [word.format(dir=tmp_path, file=tmp_path / "x.json") for word in words]
    assert script.command(["/some/where/bench.py", *words], parsed(script, *words)) == f"python scripts/bench.py{command}"


def test_data_that_the_environment_names_is_in_the_command(tmp_path):
    options = parsed(script)
    options.data = tmp_path
    assert script.command(["bench.py"], options) == "python scripts/bench.py --data DIR"


def test_the_commit_says_whether_files_differ_and_pages_do_not_count(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "scripts" / "bench.py").write_text("1")
    (tmp_path / "docs" / "page.md").write_text("1")
    (tmp_path / "README.md").write_text("1")
    monkeypatch.setattr(script, "__file__", str(tmp_path / "scripts" / "result_files.py"))
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    head = script.commit()
    assert len(head) == 40
    (tmp_path / "docs" / "page.md").write_text("2")
    (tmp_path / "README.md").write_text("2")
    assert script.commit() == head
    (tmp_path / "scripts" / "bench.py").write_text("2")
    assert script.commit() == head + " + changes"


def test_a_file_has_its_origin_and_rounded_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["scripts/bench.py"])
    path = tmp_path / "results" / "bench.json"
    script.write_results(path, script.provenance(parsed(script)), {"rows": [{"x": 0.123456789, "big": 1234.5678, "n": 3}]})
    found = json.loads(path.read_text())
    assert list(found) == ["command", "commit", "date", "rows"]
    assert found["command"] == "python scripts/bench.py"
    assert found["rows"] == [{"x": 0.12346, "big": 1234.57, "n": 3}]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python scripts/a.py --table 'dear when hard'", "scripts/a.py --table 'dear when hard' --results {file}"),
        ("python scripts/a.py --data DIR --keep DIR", "scripts/a.py --data /real --keep /scratch --results {file}"),
        ("python scripts/a.py --data DIR -o DIR", "scripts/a.py --data /real -o /scratch"),
    ],
)
def test_the_command_of_a_file_makes_it_again(tmp_path, command, words):
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"command": command}), encoding="utf-8")
    found = script.again(file, Path("/real"), Path("/scratch"))
    assert found == [sys.executable, *shlex.split(words.format(file=file))]


def test_every_committed_file_can_be_made_again():
    for file in script.RESULTS.glob("*.json"):
        _, program, *_ = script.again(file, Path("/real"), Path("/scratch"))
        assert (script.RESULTS.parent / program).is_file()


def test_files_are_made_by_one_command(tmp_path, monkeypatch):
    maker = tmp_path / "scripts" / "a.py"
    maker.parent.mkdir()
    maker.write_text("import sys, pathlib; pathlib.Path(sys.argv[-1]).write_text(sys.argv[1])", encoding="utf-8")
    broken = tmp_path / "scripts" / "b.py"
    broken.write_text("raise SystemExit(3)", encoding="utf-8")
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(script, "commit", lambda: "abc")
    script.RESULTS.mkdir()
    for name, words in (("a", "7"), ("b", "8")):
        (script.RESULTS / f"{name}.json").write_text(json.dumps({"command": f"python scripts/{name}.py {words}"}), "utf-8")
    monkeypatch.setattr(sys, "argv", ["result_files.py"])
    assert script.main() == 1
    assert (script.RESULTS / "a.json").read_text("utf-8") == "7"
    assert "python" in (script.RESULTS / "b.json").read_text("utf-8")


def test_nothing_is_measured_on_what_is_not_committed_or_without_its_data(monkeypatch, capsys):
    monkeypatch.setattr(script, "commit", lambda: "abc + changes")
    monkeypatch.setattr(sys, "argv", ["result_files.py", "wire"])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert "commit first" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["result_files.py", "signals", "--dry-run"])
    with pytest.raises(SystemExit, match="2"):
        script.main()
    assert "signals.json: its command reads real data: name the folder by --data" in capsys.readouterr().err
