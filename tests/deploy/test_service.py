"""The example service really serves: asked over HTTP, scraped by a real Prometheus, told to reload, ended in good order."""

import json
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from attack_paths import SHARED

from vinelm.requests.names import scoped
from vinelm.traces import ObservationStore
from vinelm.vinefile import load_trie, save_trie

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "vinelm.json").read_text(encoding="utf-8"))
TOKEN, OTHER = "0123456789abcdef-acme", "0123456789abcdef-mallory"


def known(token):
    """The header that says whose request it is."""
    return {"Authorization": f"Bearer {token}"}


EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def soak():
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    pytest.importorskip("prometheus_client")
    from soak_parts import app, bookkeeping, processes

    return app, bookkeeping, processes


@pytest.fixture
def serving(soak, redis_server, tmp_path):
    """A serving process with three engines, and a function that asks it."""
    import httpx

    app, books, processes = soak
    engines = [processes.Engine(name, tmp_path, 0.0) for name in ("east", "west-a", "west-b")]
    for engine in engines:
        engine.start()
    models, trie = tmp_path / "models.toml", tmp_path / "soak.vine"
    models.write_text(app.catalog_toml({engine.name: engine.url for engine in engines}, 6000))
    save_trie(trie, app.annotated(app.Catalog.from_file(models), 0))
    command = [str(ROOT / "deploy" / "service.py"), "soak_parts.app:workflow", "--models", str(models), "--trie", str(trie)]
    command += ["--evidence", str(tmp_path / "served.db"), "--fleet", redis_server.url, "--max-cost-usd", "1"]
    command += ["--journal", str(tmp_path / "fleet.sqlite"), "--daily-usd", "acme=50"]
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'acme = "{TOKEN}"\nmallory = "{OTHER}"\n')
    command += ["--tokens", str(tokens)]
    server = processes.Server(0, command, {"PYTHONPATH": SHARED}, tmp_path / "log")
    server.start()

    def ask(name, **more):
        body = {"id": name, "data": {"question": books.question(name, "")}, **more}
        return httpx.post(f"{server.url}/ask", json=body, headers=known(TOKEN), timeout=60)

    yield server, ask, trie, models
    server.kill()
    for engine in engines:
        engine.kill()


@pytest.mark.long
def test_a_process_serves_reloads_and_ends_in_good_order(soak, serving, tmp_path):
    import httpx

    app, _, _ = soak
    server, ask, trie, models = serving
    told = [ask(f"r{number}").json() for number in range(20)]
    assert all(one["id"] == f"r{number}" and one["answer"]["answer"] for number, one in enumerate(told))
    for token, success, status in ((TOKEN, True, 200), (OTHER, False, 200), (TOKEN, 7, 400), ("guessed", False, 401)):
        said = {"id": "r0", "success": success}
        assert httpx.post(f"{server.url}/feedback", json=said, headers=known(token)).status_code == status
    assert httpx.post(f"{server.url}/ask", content=b"[]", headers=known(TOKEN)).status_code == 400
    assert ask("bad", objective={"maximize": "fun"}).status_code == 400
    newer = app.annotated(app.Catalog.from_file(models), 1)
    assert server.health()["trie"] == app.version_of(load_trie(trie)) != app.version_of(newer)
    save_trie(trie, newer)
    server.hang_up()
    until = time.monotonic() + 20
    while server.health()["trie"] != app.version_of(newer):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert server.end()
    with ObservationStore.open(tmp_path / "served.db") as store:
        rows = store.observations()
    assert {(row.request_id, row.prefix) for row in rows} == {
        (scoped(one["id"], "acme"), tuple(path)) for one in told for path in one["invocations"]
    }
    assert [row.success for row in rows if row.request_id == scoped("r0", "acme")][-1] is True


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("prometheus"), reason="no prometheus: install it (Debian: apt install prometheus)")
def test_a_real_prometheus_answers_every_expression_of_the_dashboard(serving, tmp_path):
    import httpx

    server, ask, _, _ = serving
    port = free_port()
    job = {"job_name": "vinelm", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
    process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)

    def values(expression):
        try:
            told = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params={"query": expression}, timeout=10).json()
        except (httpx.HTTPError, ValueError):
            return []
        return [float(one["value"][1]) for one in told["data"]["result"]] if told["status"] == "success" else []

    try:
        until, lacking = time.monotonic() + 60, EXPRESSIONS
        number = 0
        while lacking and time.monotonic() < until:
            number += 1
            assert ask(f"r{number}").status_code == 200
            time.sleep(0.3)
            if number % 10 == 0:
                lacking = [one for one in EXPRESSIONS if not values(one.replace("$__rate_interval", "10s"))]
        assert lacking == []
        done = sum(values("vinelm_invocations_total"))
        assert 0 < done <= 3 * number
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
