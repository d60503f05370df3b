"""The applications of scripts/first_trial.py: ``check`` passes them all."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from vinelm import Catalog, load_workflow
from vinelm.profiler import check_workflow

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script():
    spec = importlib.util.spec_from_file_location("first_trial", SCRIPTS / "first_trial.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRIAL = script()


@pytest.fixture
def models(tmp_path, monkeypatch):
    path = tmp_path / "models.toml"
    entries = (TRIAL.ENTRY.format(name=name, port=9, input=i, output=o) for name, (i, o) in TRIAL.PRICES.items())
    path.write_text("".join(entries))
    monkeypatch.setenv("FIRST_TRIAL_MODELS", str(path))
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return path


@pytest.mark.parametrize("app", TRIAL.APPS)
def test_an_application_as_people_write_it_passes_check(app, models):
    """Structured output, forced tools, chat models at module level: most of these were refused or failed."""
    report = check_workflow(load_workflow(f"trial_apps.{app}:workflow"), Catalog.from_file(models))
    assert [item.detail for item in report.items if not item.is_ok] == []


@pytest.mark.long
def test_the_whole_trial_of_one_application():
    command = [sys.executable, str(SCRIPTS / "first_trial.py"), "--json", "--apps", "multi_turn", "--budget-usd", "0.008"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    [app] = json.loads(done.stdout)["apps"]
    assert app["failed"] == []
    assert app["failed_rows"] == 0
    assert app["served_requests"] == 60
    assert app["served"] > 0.5
