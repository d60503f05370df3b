"""A trie or a store of a stranger says which models there are, and never where calls go, with which key, or what is run."""

import json
import shutil
import sys
import zipfile
from dataclasses import replace

import pytest

import vinelm
from vinelm import VineLM
from vinelm.backends import create_backends
from vinelm.backends.registry import PROVIDERS
from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.traces import ObservationStore
from vinelm.vinefile import load_trie

BEST = Objective(maximize="accuracy")
EVIL = "http://127.0.0.1:9/evil"
PRICE = {"input": 1.0, "output": 2.0, "source": "a stranger", "as_of": "2026-01-01"}


def entry(provider, name):
    """An entry that says in every field that holds anything where to go."""
    return {
        "name": name, "provider": provider, "model_id": f"{provider}:evil", "engine": name, "price": PRICE,
        "api_base": EVIL, "api_key_env": "VINELM_CANARY_KEY",
        "options": {
            "base_url": EVIL, "openai_proxy": EVIL, "default_headers": {"x": EVIL}, "extra_body": {"api_base": EVIL},
            "endpoint_url": EVIL, "table": EVIL, "class": "evil_module:Evil", "credentials_file": EVIL,
        },
    }  # fmt: skip


def stranger(path, to, provider):
    """The trie at ``path`` with its catalog replaced by a stranger's, of the same names."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(to, "w", zipfile.ZIP_STORED) as out:
        for info in archive.infolist():
            content = archive.read(info)
            if info.filename == "manifest.json":
                manifest = json.loads(content)
                names = [one["name"] for one in manifest["catalog"]["model"]]
                table = {"base_url": EVIL, "proxy": EVIL, "headers": {"x": EVIL}, "table": EVIL, "project": "VINELM_CANARY_KEY"}
                manifest["catalog"] = {"model": [entry(provider, name) for name in names], "backend": {provider: table}}
                content = json.dumps(manifest).encode()
            out.writestr(zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0)), content)


REAL = sorted(set(PROVIDERS) - {"simulated"})


@pytest.fixture(params=REAL)
def evil(request, app, monkeypatch):
    """The file of a stranger in the working folder, with a key in the environment that it names."""
    monkeypatch.setenv("VINELM_CANARY_KEY", "the-key-of-the-operator-0123456789")
    stranger(app / "t.vine", app / "evil.vine", request.param)
    return app / "evil.vine"


def refused(call, *words):
    with pytest.raises(ConfigError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert "evil" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_no_field_says_where_calls_go(evil):
    catalog = load_trie(evil).catalog
    plain = json.dumps(catalog.to_dict())
    assert EVIL not in plain
    assert "VINELM_CANARY_KEY" not in plain
    assert "evil_module" not in plain
    assert not catalog.backends
    for model in catalog.entries:
        assert (model.api_base, model.api_key_env, model.options) == (None, None, {})
    again = json.dumps(catalog.subset(tuple(catalog)).to_dict())
    assert EVIL not in again


def test_nobody_calls_by_it(evil, monkeypatch):
    def never(*_, **__):
        raise AssertionError("a client was made")

    monkeypatch.setattr("vinelm.backends.registry._create", never)
    annotated = load_trie(evil)
    for made in (annotated.catalog, annotated.catalog.subset(tuple(annotated.catalog)[:1])):
        refused(lambda made=made: create_backends(made), "give models")
    refused(lambda: VineLM(trie=evil), "give models")
    refused(lambda: VineLM(trie=annotated), "give models")
    refused(lambda: VineLM(annotated.catalog, trie=annotated).models.backends, "give models")
    refused(lambda: vinelm.batch("my_app:workflow", evil, BEST, output="a.jsonl", budget_usd=1), "give models")
    assert not evil.with_name("a.jsonl").exists()


@pytest.fixture(scope="module")
def profiled(project, tmp_path_factory):
    """A folder with a store of the application, and its trie; not to be written to."""
    folder = tmp_path_factory.mktemp("profiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.syspath_prepend(str(project))
        patch.delitem(sys.modules, "my_app", raising=False)
        workflow = vinelm.load_workflow("my_app:workflow")
        few = replace(workflow, requests=workflow.requests[:40])
        vinelm.profile(few, "models.toml", folder / "s.db", budget_calls=120)
    vinelm.save_trie(folder / "t.vine", vinelm.estimate(folder / "s.db", max_error=None))
    return folder


@pytest.fixture
def a_store(profiled, app):
    """A copy of them in the working folder."""
    for file in profiled.iterdir():
        shutil.copy(file, app)


@pytest.mark.usefixtures("a_store")
def test_nor_to_verify_or_evaluate():
    stranger("t.vine", "evil.vine", "openai")
    workflow = vinelm.load_workflow("my_app:workflow")
    assert vinelm.verify("s.db", "t.vine", BEST, workflow=workflow, requests=2)
    refused(lambda: vinelm.verify("s.db", "evil.vine", BEST, workflow=workflow, requests=2), "give models")
    refused(lambda: vinelm.evaluate("s.db", "evil.vine", BEST, workflow=workflow, serve=2), "give models")


def test_the_command_says_which_option_to_give(evil, capsys):
    words = ["batch", "my_app:workflow", "--trie", str(evil), "--maximize", "accuracy", "--budget-usd", "1", "-o", "a.jsonl"]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "--models FILE" in told
    assert EVIL not in told
    assert told.count("\n") == 1


def test_with_a_catalog_of_ones_own_its_addresses_hold(evil):
    own = Catalog.from_file("models.toml")
    seen = []

    class Backend:
        is_simulated = is_virtual_time = True

        def chat_model(self, model, call):
            seen.append(model)
            raise NotImplementedError

    backends = dict.fromkeys(("simulated", *PROVIDERS), Backend())
    for catalog in (own, load_trie(evil).catalog):  # the second: backends of one's own, entries of the file
        vine = VineLM(catalog, backends, trie=evil)
        for name in catalog:
            with pytest.raises(NotImplementedError):
                vine.models.chat_model(name, None)
    assert EVIL not in json.dumps([one.model_dump(mode="json") for one in seen])


def test_a_batch_calls_by_a_catalog_of_ones_own(app):
    stranger(app / "t.vine", app / "evil.vine", "openai")
    own = Catalog.from_file("models.toml")
    assert vinelm.batch("my_app:workflow", "evil.vine", BEST, output="a.jsonl", models=own).is_complete


def test_a_file_that_is_written_names_no_address(app):
    annotated = load_trie("t.vine")
    full = Catalog.from_dict({"model": [entry("openai", name) for name in annotated.catalog]})
    vinelm.save_trie("full.vine", replace(annotated, catalog=full))
    assert EVIL.encode() not in (app / "full.vine").read_bytes()
    assert b"VINELM_CANARY_KEY" not in (app / "full.vine").read_bytes()


@pytest.mark.usefixtures("a_store")
@pytest.mark.parametrize("provider", REAL)
def test_nobody_calls_by_the_catalog_of_a_store(provider):
    with ObservationStore.open("s.db") as opened:
        identity = opened.identity
    catalog = {"model": [entry(provider, name) for name in identity.models()], "backend": {provider: {"base_url": EVIL}}}
    found = replace(identity, catalog=catalog).models()
    assert EVIL not in json.dumps(found.to_dict())
    refused(lambda: create_backends(found), "give models")


@pytest.mark.usefixtures("a_store")
def test_a_store_names_no_module_that_is_imported(app, monkeypatch):
    (app / "evil_module.py").write_text("raise SystemExit('imported')")
    made = ObservationStore.__init__

    def forged(store, database, identity, *more):
        made(store, database, replace(identity, workflow="evil_module:w"), *more)

    monkeypatch.setattr(ObservationStore, "__init__", forged)
    annotated = load_trie("t.vine")
    annotated = replace(annotated, meta={**annotated.meta, "workflow": "evil_module:w"})
    with pytest.raises(ConfigError, match="is not a bundled one: give workflow"):
        vinelm.verify("s.db", annotated, BEST)
    assert "evil_module" not in sys.modules


def test_simulated_models_of_a_file_still_answer(app):
    assert vinelm.batch("my_app:workflow", "t.vine", BEST, output="a.jsonl").is_complete
    assert VineLM(trie="t.vine").catalog.is_embedded
