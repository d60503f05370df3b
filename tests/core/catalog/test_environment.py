"""Keys in ``.env`` files: which are taken, which win, and that their values are shown nowhere."""

import os
import subprocess
import sys

import pytest

from vinelm.backends import create_backends
from vinelm.catalog import Catalog, environment
from vinelm.catalog.environment import take_variables, variables_of_files
from vinelm.cli.main import main
from vinelm.clock import WallClock
from vinelm.requests.protocols import CallContext

CANARY = "sk-canary-dotenv-1"
MODEL = """
[[model]]
name = "m"
provider = "openai"
model = "gpt-4o"
api_key_env = "ACME_SECRET"
"""
NAMES = ("ACME_SECRET", "OTHER_API_KEY", "DATABASE_PASSWORD", "AWS_REGION", "VLLM_HERE", "VINELM_DOTENV")


@pytest.fixture(autouse=True)
def places(monkeypatch, tmp_path):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what a test sets is taken back
        monkeypatch.delenv(name)
    monkeypatch.setattr(environment, "_taken", {})
    (tmp_path / "app").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "app" / "models.toml").write_text(MODEL)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def write(path, **variables):
    (path / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))


def asks(catalog):
    call = CallContext(stage="s", prefix=(), clock=WallClock(), on_usage=lambda usage: None)
    return create_backends(catalog)["openai"].chat_model(catalog["m"], call)


@pytest.mark.parametrize("folder", ["app", "work"])
def test_a_key_beside_the_catalog_or_in_the_working_directory(places, folder):
    write(places / folder, ACME_SECRET=CANARY)
    assert asks(Catalog.from_file(places / "app" / "models.toml"))
    assert os.environ["ACME_SECRET"] == CANARY
    assert variables_of_files() == {"ACME_SECRET": str(places / folder / ".env")}


def test_the_environment_wins_then_the_catalogs_folder(places, monkeypatch):
    write(places / "app", ACME_SECRET="a", OTHER_API_KEY="a", AWS_REGION="a")
    write(places / "work", ACME_SECRET="w", OTHER_API_KEY="w")
    monkeypatch.setenv("ACME_SECRET", "real")
    monkeypatch.setenv("AWS_REGION", "")  # set to nothing is set
    Catalog.from_file(places / "app" / "models.toml")
    assert [os.environ[name] for name in ("ACME_SECRET", "OTHER_API_KEY", "AWS_REGION")] == ["real", "a", ""]


def test_what_no_model_needs_stays_out_of_the_environment(places):
    write(places / "work", ACME_SECRET=CANARY, DATABASE_PASSWORD="p", VINELM_SOMETHING="x")
    Catalog.from_file(places / "app" / "models.toml")
    assert "DATABASE_PASSWORD" not in os.environ
    assert "VINELM_SOMETHING" not in os.environ


@pytest.mark.parametrize(("folder", "is_taken"), [("app", True), ("work", False)])
def test_where_keys_are_sent_is_not_for_the_working_directory_to_say(places, monkeypatch, folder, is_taken):
    monkeypatch.setenv("OLLAMA_API_BASE", "")
    monkeypatch.delenv("OLLAMA_API_BASE")
    write(places / folder, OLLAMA_API_BASE="http://elsewhere.example")
    Catalog.from_file(places / "app" / "models.toml")
    assert ("OLLAMA_API_BASE" in os.environ) == is_taken


def test_litellm_configs_read_it_before_their_references(places):
    write(places / "app", VLLM_HERE="http://gpu-1:8000/v1")
    path = places / "app" / "config.yaml"
    path.write_text("model_list: [{model_name: m, litellm_params: {model: hosted_vllm/x, api_base: os.environ/VLLM_HERE}}]")
    assert Catalog.from_file(path)["m"].api_base == "http://gpu-1:8000/v1"


def test_strings_take_the_working_directorys(places):
    write(places / "work", OTHER_API_KEY=CANARY)
    Catalog.from_strings(["openai:gpt-4o"])
    assert os.environ["OTHER_API_KEY"] == CANARY


@pytest.mark.parametrize("off", ["0", "false", "No", "off"])
def test_it_can_be_switched_off(places, monkeypatch, off):
    write(places / "work", ACME_SECRET=CANARY)
    monkeypatch.setenv("VINELM_DOTENV", off)
    Catalog.from_file(places / "app" / "models.toml")
    assert "ACME_SECRET" not in os.environ


def test_children_have_the_key(places):
    write(places / "app", ACME_SECRET=CANARY)
    Catalog.from_file(places / "app" / "models.toml")
    shown = subprocess.run(
        [sys.executable, "-c", "import os; print(os.environ['ACME_SECRET'])"], check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == CANARY


def test_its_values_are_shown_nowhere(places, capsys, caplog):
    caplog.set_level(0)
    write(places / "app", ACME_SECRET=CANARY)
    catalog = Catalog.from_file(places / "app" / "models.toml")
    main(["check", "--models", str(places / "app" / "models.toml")])
    said = capsys.readouterr()
    assert "ACME_SECRET" in said.out
    assert CANARY not in said.out + said.err + caplog.text + repr(catalog) + repr(catalog.to_dict())


@pytest.mark.parametrize("content", [b"\xff\xfe\x00nonsense", b"no equals sign\n=\nexport\n", b"ACME_SECRET='half\n"])
def test_a_file_that_cannot_be_read_stops_nothing(places, caplog, content):
    (places / "work" / ".env").write_bytes(content)
    Catalog.from_file(places / "app" / "models.toml")
    assert "half" not in caplog.text


def test_what_is_no_file_is_not_opened(places):
    os.mkfifo(places / "work" / ".env")
    (places / "app" / ".env").mkdir()
    take_variables(places / "app")
    assert variables_of_files() == {}
