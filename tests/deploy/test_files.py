"""The files in deploy/ agree with each other and with the code; programs that read them accept them, where installed."""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import click
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVE = COMPOSE["services"]["serve"]
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "vinelm.json").read_text(encoding="utf-8"))
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
METRIC = re.compile(r"\bvinelm_\w+")


@pytest.fixture(scope="module")
def service():
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    pytest.importorskip("prometheus_client")
    spec = spec_from_file_location("deployed_service", DEPLOY / "service.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exported():
    """Names of the series of our metrics, read off the code."""
    found = set()
    for file in (ROOT / "vinelm" / "telemetry" / "prometheus.py", DEPLOY / "service.py"):
        for kind, name in re.findall(r'(Counter|Gauge|Histogram)\(\s*"(vinelm_\w+)"', file.read_text(encoding="utf-8")):
            ends = {"Counter": ["_total"], "Gauge": [""], "Histogram": ["_bucket", "_sum", "_count"]}[kind]
            found |= {name + end for end in ends}
    return found


def test_every_expression_names_metrics_that_are_exported():
    known = exported()
    assert len(known) > 15
    for one in [*TARGETS, *RULES]:
        names = METRIC.findall(one["expr"])
        assert names, one["expr"]
        assert set(names) <= known, one["expr"]


def test_the_dashboard_shows_every_counter_of_the_observer():
    shown = {name for one in TARGETS for name in METRIC.findall(one["expr"])}
    source = (ROOT / "vinelm" / "telemetry" / "prometheus.py").read_text(encoding="utf-8")
    for kind, name in re.findall(r'(Counter|Gauge|Histogram)\(\s*"(vinelm_\w+)"', source):
        assert any(one.startswith(name) for one in shown), (kind, name)


def test_the_dashboard_asks_the_data_source_that_is_provisioned():
    folder = DEPLOY / "grafana" / "provisioning"
    sources = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text(encoding="utf-8"))["datasources"]
    assert {one["datasource"]["uid"] for one in [*DASHBOARD["panels"], *TARGETS]} == {source["uid"] for source in sources}
    assert sources[0]["url"] == "http://prometheus:9090"
    assert "prometheus" in COMPOSE["services"]
    providers = yaml.safe_load((folder / "dashboards" / "vinelm.yaml").read_text(encoding="utf-8"))["providers"]
    mounted = {volume.split(":")[1] for volume in COMPOSE["services"]["grafana"]["volumes"]}
    assert providers[0]["options"]["path"] in mounted
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_ports_and_hosts_of_the_files_agree():
    options = dict(word.lstrip("-").split("=", 1) for word in SERVE["command"] if word.startswith("--"))
    assert PROMETHEUS["scrape_configs"][0]["dns_sd_configs"][0] | {"refresh_interval": "5s"} == {
        "names": ["serve"], "type": "A", "port": int(options["port"]), "refresh_interval": "5s",
    }  # fmt: skip
    assert options["fleet"].startswith("redis://redis:")
    published = SERVE["ports"][0].removeprefix("127.0.0.1:").split(":")
    first, last = map(int, published[0].split("-"))
    assert published[1] == options["port"]
    assert last - first + 1 == SERVE["deploy"]["replicas"]
    everything = COMPOSE["services"].values()
    assert all(port.startswith("127.0.0.1:") for one in everything for port in one.get("ports", []))


def test_what_is_mounted_and_copied_exists():
    for one in COMPOSE["services"].values():
        for volume in one.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for source in re.findall(r"^COPY (.+) \S+$", docker, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())
    assert (ROOT / SERVE["build"]["dockerfile"]).exists()


def test_the_service_knows_the_options_that_it_is_started_with(service):
    words = SERVE["command"]
    options = service.parser().parse_args(words[words.index("service.py") + 1 :])
    assert options.workflow == "my_app:workflow"
    assert service.fleet_config(options, service.Tenants(None)).daily_usd == {"*": 50.0}
    assert (ROOT / "docs" / "examples" / str(options.models)).exists()


def test_the_commands_of_the_profile_exist():
    from vinelm.cli.main import cli

    script = COMPOSE["services"]["profile"]["command"][-1]
    for line in script.splitlines():
        words = line.split()
        assert words[0] == "vinelm"
        known = {name for option in cli.get_command(click.Context(cli), words[1]).params for name in option.opts}
        assert {word.split("=")[0] for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").iterdir()), ids=lambda unit: unit.name)
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze: install it (Debian: apt install systemd)")
def test_systemd_accepts_the_unit(unit, tmp_path):
    name = unit.name.replace("@", "@8000")
    text = re.sub(r"/srv/vinelm/\.venv/bin/\w+", sys.executable, unit.read_text(encoding="utf-8"))
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if name in line]) == (0, [])


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: install it (Debian: apt install prometheus)")
def test_prometheus_accepts_its_files():
    command = ["promtool", "check", "config", DEPLOY / "prometheus" / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def compose_command():
    if (
        shutil.which("docker")
        and subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    ):
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


@pytest.mark.long
def test_compose_accepts_its_file():
    command = compose_command()
    if command is None:
        pytest.skip("no Docker Compose: install it (Debian: apt install docker-compose)")
    done = subprocess.run(
        [*command, "-f", DEPLOY / "compose.yaml", "config", "-q"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_only_what_is_listed_enters_the_image():
    """Everything is left out by the first line; what comes back are sources, and nothing that could hold a key."""
    lines = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    back = [line[1:] for line in lines if line[0] == "!"]
    assert all((ROOT / name).exists() for name in back)
    assert not {".git", ".env", "runs", ".venv", "tests", "."} & {name.split("/")[0] for name in back}
    assert all(line[0] not in "!" for line in lines[1 + len(back) :])  # the refusals come last, so that they win
    refused = {"**/.env*", "**/.git*", "**/*.db", "**/*.key", "**/*.pem", "**/*.sqlite*"}
    assert refused <= set(lines[1 + len(back) :])
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for source in re.findall(r"^COPY (?!\. )(.+) \S+$", docker, re.MULTILINE):
        for name in source.split():
            assert any(name == kept or name.startswith(kept + "/") for kept in back), name


def test_the_image_installs_nothing_without_a_hash():
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    calls = re.findall(r"pip install ([^&\n]*)", docker)
    assert len(calls) == 2
    assert "--require-hashes" in calls[0]
    assert calls[1].split() == ["--no-cache-dir", "--no-deps", "--no-build-isolation", "/src"]


def test_no_password_stands_on_a_command_line(service, capsys):
    for unit in (DEPLOY / "systemd").iterdir():
        assert "VINELM_FLEET" in unit.read_text(encoding="utf-8")
    for text in [*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.service")]:
        assert not re.search(r"(command|Exec\w+)\b.*://[^/\s]*:[^/\s@]*@", text.read_text(encoding="utf-8")), text
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert "install -m 600 /dev/null /etc/vinelm/serve.env" in readme
    line = ["my_app:workflow", "--models=m.toml", "--trie=t.vine"]
    for option in ("--fleet=redis://:geheim@h:6379", "--journal=postgresql://ann:geheim@h/d"):
        with pytest.raises(SystemExit) as ended:
            service.parser().parse_args([*line, option])
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert "the address holds a password" in told
        assert "geheim" not in told


def test_addresses_with_passwords_come_from_the_environment(service, monkeypatch):
    monkeypatch.setenv("VINELM_FLEET", "redis://:geheim@h:6379")
    monkeypatch.setenv("VINELM_JOURNAL", "postgresql://ann:geheim@h/d")
    options = service.parser().parse_args(["my_app:workflow", "--models=m.toml", "--trie=t.vine", "--daily-usd=*=5"])
    assert service.fleet_config(options, service.Tenants(None)).url == "redis://:geheim@h:6379"
    assert options.journal == "postgresql://ann:geheim@h/d"


def test_the_gateways_command_is_one(tmp_path):
    """Its options are those of `vinelm gateway`, and the ports agree."""
    from vinelm.cli.commands.gateway import command

    [service] = yaml.safe_load((DEPLOY / "gateway.yaml").read_text(encoding="utf-8"))["services"].values()
    program, name, *options = service["command"]
    assert (program, name) == ("vinelm", "gateway")
    read = command.make_context(name, options).params
    assert (read["host"], read["keys"].parent) == ("0.0.0.0", read["record"].parent)
    assert service["ports"] == [f"127.0.0.1:{read['port']}:{read['port']}"]
    assert f":{read['port']}/health" in service["healthcheck"]["test"][-1]
    mounted = {volume.split(":")[1] for volume in service["volumes"]}
    assert {str(read["keys"].parent), read["models"]} <= mounted
