"""`vinelm engine`: the line that it runs, in a process of its own, with a stand-in for SGLang."""

import json
import os
import subprocess
import sys

from vinelm.cli.main import main

STAND_IN = "import json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(7)\n"


def test_the_line_it_would_run(capsys):
    assert main(["engine", "my/model", "--print", "--tp", "2"]) == 0
    assert capsys.readouterr().out == (
        "python -m sglang.launch_server --model-path my/model --enable-metrics --enable-priority-scheduling --tp 2\n"
    )


def test_the_server_takes_its_place(tmp_path):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    (tmp_path / "sglang" / "launch_server.py").write_text(STAND_IN)
    code = "import sys; from vinelm.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "engine", "m", "--port", "31000", "--mem-fraction-static", "0.8"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    asked = json.loads(done.stdout)
    assert asked[:4] == ["--model-path", "m", "--enable-metrics", "--enable-priority-scheduling"]
    assert asked[4:] == ["--port", "31000", "--mem-fraction-static", "0.8"]


def test_without_sglang_it_is_one_line(capsys):
    assert main(["engine", "m"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: SGLang is not installed: run pip install 'vinelm[sglang]' on a host with a GPU")
    assert said.count("\n") == 1
