"""The section "In the service" works in a folder with the page's own three files, once the commands before it have run."""

import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_section_runs_with_its_three_files(tmp_path):
    """It used names that it did not import, and simulated models were asked a question that they do not know."""
    for name in ("my_app.py", "questions.jsonl", "models.toml"):
        shutil.copy(DOCS / "examples" / name, tmp_path)
    page = (DOCS / "your-own-app.md").read_text()
    block = page.partition("## In the service")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "service.py").write_text(block)
    for command in (
        [
            "vinelm.cli.main",
            "profile",
            "my_app:workflow",
            "--models",
            "models.toml",
            "--store",
            "my-app.db",
            "--coverage",
            "0.05",
        ],
        ["vinelm.cli.main", "estimate", "my-app.db", "-o", "my-app.vine", "--max-error", "1"],
    ):
        ran = subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    ran = subprocess.run([sys.executable, "service.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    answer, *explained = ran.stdout.splitlines()
    assert answer
    assert any("solve" in line for line in explained)
