"""The engines' load reports over a real socket: the documented formats, their fallbacks, and servers that fail."""

import json
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.waiting import wait_for

from vinelm.clock import VirtualClock
from vinelm.controller import EnginePoller, ReportedLoadMonitor, SlowdownCurve
from vinelm.controller.load.engine_metrics import requests_in_loads, requests_in_metrics, sglang_requests, vllm_requests
from vinelm.errors import ConfigError, VineLMError

LINE = SlowdownCurve((0.0, 10.0), (0.0, 5.0))
CANARY = "sk-canary-engine-1"
WORKER = {
    "timestamp": 1.0, "num_used_tokens": 9, "max_total_num_tokens": 99, "token_usage": 0.1, "gen_throughput": 7.5,
    "cache_hit_rate": 0.5, "utilization": 0.2, "max_running_requests": 128,
}  # fmt: skip
LOADS = {
    "timestamp": "2026-01-01T00:00:00+00:00",
    "version": "0.5.9",
    "loads": [
        {"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 2, **WORKER},
        {"dp_rank": 1, "num_running_reqs": 1, "num_waiting_reqs": 0, **WORKER},
    ],
}
OLDER = [{"dp_rank": 0, "num_reqs": 7, "num_waiting_reqs": 2, "num_tokens": 70, "ts_tic": 1.0}]
VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/a{b}"} 4.0
vllm:num_requests_running{engine="1",model_name="org/a{b}"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/a{b}"} 1.0
vllm:num_requests_waiting{engine="1",model_name="org/a{b}"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="org/a{b}",reason="capacity, or \\"deferred\\""} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/a{b}"} 0.4
"""


def sglang_metrics(**workers):
    """Both gauges for each worker: its labels to (running, waiting)."""
    return "".join(
        f"sglang:num_running_reqs{{{labels}}} {running}.0\nsglang:num_queue_reqs{{{labels}}} {waiting}.0\n"
        for labels, (running, waiting) in workers.items()
    )


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages = {"/v1/loads?include=core": json.dumps(LOADS), "/get_load": json.dumps(OLDER), "/metrics": VLLM}
        self.asked, self.key, self.status, self.cut, self.let_go = [], None, 200, 0, None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.server.let_go is not None:
            self.server.let_go.wait(30)
        page = self.server.pages.get(self.path)
        is_let_in = self.server.key is None or self.headers.get("Authorization") == f"Bearer {self.server.key}"
        status = 401 if not is_let_in else 404 if page is None else self.server.status
        body = (page or "no such page").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + self.server.cut))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *unused):
        pass


@pytest.fixture
def server():
    engine = Server()
    thread = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield engine
    if engine.let_go is not None:
        engine.let_go.set()
    engine.shutdown()
    engine.server_close()
    thread.join()


def test_engines_tell_how_many_requests_they_hold(server):
    assert sglang_requests(server.url + "/v1")() == 6
    assert vllm_requests(server.url + "/")() == 7
    del server.pages["/v1/loads?include=core"]
    older = sglang_requests(server.url)
    assert older() == 7  # num_reqs counts the waiting ones, too
    del server.pages["/get_load"]
    assert older() == 7


def test_the_page_that_answered_is_asked_again_until_the_server_has_another_version(server):
    del server.pages["/v1/loads?include=core"]
    ask = sglang_requests(server.url)
    assert [ask(), ask()] == [7, 7]
    assert server.asked == ["/v1/loads?include=core", "/get_load", "/get_load"]
    server.pages = {"/v1/loads?include=core": json.dumps(LOADS)}
    assert [ask(), ask()] == [6, 6]
    server.pages = {}  # it is starting: nothing is there yet
    with pytest.raises(VineLMError, match=r"/metrics: the engine does not have this page \(404\)"):
        ask()
    server.pages = {"/v1/loads?include=core": json.dumps(LOADS)}
    assert ask() == 6


def test_workers_that_share_their_requests_count_once_and_others_each():
    shared = sglang_metrics(**{'tp_rank="0",pp_rank="0"': (3, 2), 'tp_rank="1",pp_rank="0"': (3, 2)})
    assert requests_in_metrics(shared) == 5
    data_parallel = sglang_metrics(**{'dp_rank="0",tp_rank="0"': (3, 2), 'dp_rank="1",tp_rank="1"': (1, 0)})
    assert requests_in_metrics(data_parallel) == 6
    by_priority = sglang_metrics(**{'priority=""': (4, 3), 'priority="1"': (3, 3), 'priority="9"': (1, 0)})
    assert requests_in_metrics(by_priority) == 7
    llama_cpp = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\nllamacpp:n_busy_slots_per_decode 3.47\n"
    assert requests_in_metrics(llama_cpp) == 5
    without_total = sglang_metrics(**{'priority="1"': (3, 3), 'priority="9"': (1, 0)})
    assert requests_in_metrics(without_total) == 7
    assert requests_in_metrics('sglang_num_running_reqs{dp_rank="0"} 2\nsglang_num_queue_reqs{dp_rank="0"} 1 1700000000') == 3
    assert requests_in_metrics("vllm:num_requests_running 2\nvllm:num_requests_waiting 0\nvllm:num_requests_swapped 1") == 3


@pytest.mark.parametrize(
    "plain", [{}, [], {"loads": []}, {"loads": None}, "busy", 7, None, [3], {"loads": ["x"]}, {"detail": "no"}]
)
def test_a_load_report_without_requests_is_an_error(plain):
    with pytest.raises(VineLMError, match="names no requests"):
        requests_in_loads(plain)


@pytest.mark.parametrize("count", [None, "many", -1, float("nan"), 10**400])
def test_a_load_report_with_no_number_is_an_error(count):
    with pytest.raises(VineLMError, match="not a valid number"):
        requests_in_loads({"loads": [{"num_running_reqs": count, "num_waiting_reqs": 0}]})


@pytest.mark.parametrize("count", ["NaN", "-1", "+Inf", "1" + 400 * "0", 5000 * "9"])
def test_a_metric_that_counts_nothing_is_an_error(count):
    with pytest.raises(VineLMError, match=r"not a valid number|more than 4,096 characters"):
        requests_in_metrics(f"vllm:num_requests_running {count}\n")


@pytest.mark.parametrize(
    "rest", [" many", "{", '{engine="0} 4', "{engine} 4", '{engine="0",engine="1"} 4', "{} ", '{"a"} 4', ""]
)
def test_metrics_that_are_malformed_are_an_error(rest):
    with pytest.raises(VineLMError, match="not in the Prometheus text format"):
        requests_in_metrics(f"vllm:num_requests_running{rest}\n")


@settings(deadline=None)
@given(st.text('{}="\\, \ta1_#\n\r\u2028', max_size=60))
def test_hostile_metrics_raise_one_kind_of_error(rest):
    for page in (f"vllm:num_requests_running{rest}", f"sglang:num_queue_reqs{{{rest}}} 1\n{rest}"):
        with suppress(VineLMError):
            assert requests_in_metrics(page) >= 0


def test_lines_that_are_no_gauges_are_not_parsed():
    page = "# HELP vllm:num_requests_running {\n# TYPE {\n}}}\nother{ 1\nvllm:num_requests_running 4\nvllm:e2e{le=} x\n"
    assert requests_in_metrics(page) == 4


def test_a_page_without_end_is_refused(server, monkeypatch):
    monkeypatch.setattr("vinelm.controller.load.engine_metrics.MOST_BYTES", len(VLLM) - 1)
    assert "/metrics: the page is larger than" in line_of(vllm_requests(server.url))
    monkeypatch.setattr("vinelm.controller.load.engine_metrics.MOST_BYTES", len(VLLM))
    assert vllm_requests(server.url)() == 7


def test_a_load_report_nested_too_deeply_is_no_json(server):
    server.pages["/v1/loads?include=core"] = "[" * 100_000
    assert line_of(sglang_requests(server.url)) == "the engine's load report is not JSON: is it an SGLang server?"


def test_the_extra_that_reads_metrics_is_named_where_it_is_missing(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    with pytest.raises(ConfigError, match=r"pip install 'vinelm\[metrics\]'"):
        vllm_requests(server.url)
    ask = sglang_requests(server.url)
    assert ask() == 6  # /v1/loads is JSON
    server.pages = {"/metrics": VLLM}
    assert line_of(ask).endswith("pip install 'vinelm[metrics]'")


def test_servers_that_are_no_engine_or_fail_give_one_clear_line(server):
    web = "<html>welcome</html>"
    server.pages = dict.fromkeys(server.pages, web)
    assert line_of(vllm_requests(server.url)) == (
        "the engine's metrics name no running or waiting requests: start it with metrics enabled"
    )
    assert line_of(sglang_requests(server.url)) == "the engine's load report is not JSON: is it an SGLang server?"
    server.status = 503
    assert "/v1/loads: the engine answered 503" in line_of(sglang_requests(server.url))
    server.status, server.cut = 200, 9
    assert "/metrics: no answer (IncompleteRead)" in line_of(vllm_requests(server.url))
    assert "no answer (ConnectionRefusedError)" in line_of(vllm_requests("http://127.0.0.1:9"))
    for url in ("localhost:8000", "ftp://gpu-1", "http://", ""):
        with pytest.raises(ConfigError, match="not a URL: give it as http://host:port"):
            vllm_requests(url)


def line_of(ask):
    with pytest.raises(VineLMError) as raised:
        ask()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_server_that_hangs_is_given_up_after_the_timeout(server):
    server.let_go = threading.Event()
    assert "no answer (TimeoutError)" in line_of(vllm_requests(server.url, timeout_s=0.05))


def test_the_key_comes_from_the_environment_and_shows_nowhere(server, monkeypatch):
    server.key = CANARY
    assert "the engine refused (401): name its key in api_key_env" in line_of(sglang_requests(server.url))
    monkeypatch.setenv("ACME_ENGINE_KEY", CANARY)
    assert sglang_requests(server.url, api_key_env="ACME_ENGINE_KEY")() == 6
    assert vllm_requests(server.url, api_key_env="ACME_ENGINE_KEY")() == 7
    with pytest.raises(ConfigError, match="ACME_OTHER_KEY is not set"):
        vllm_requests(server.url, api_key_env="ACME_OTHER_KEY")
    assert CANARY not in line_of(vllm_requests(f"http://me:{CANARY}@127.0.0.1:9"))


def test_a_poller_keeps_asking_and_a_failing_engine_delays_nobody(server):
    clock = VirtualClock()
    sink = ReportedLoadMonitor(dict.fromkeys(("good", "bad", "hung", "lost"), LINE), clock=clock)
    hung = threading.Event()

    def bad():
        raise OSError(CANARY)

    sources = {"good": vllm_requests(server.url), "bad": bad, "hung": hung.wait, "lost": sglang_requests(server.url)}
    server.pages = {"/metrics": VLLM}
    with EnginePoller(sources, sink, every_s=0.01) as poller:
        wait_for(lambda: "good" in sink.delays() and "bad" in poller.failures)
        assert set(sink.delays()) <= {"good", "lost"}
        assert poller.failures["bad"] == "OSError"
        server.status = 500  # and later it is back
        wait_for(lambda: "good" in poller.failures)
        assert poller.failures["good"].endswith("/metrics: the engine answered 500")
        clock.sleep(6.0)
        assert sink.delays()["good"].is_stale
        clock.sleep(60.0)
        assert sink.delays() == {}
        server.status = 200
        wait_for(lambda: "good" in sink.delays() and "good" not in poller.failures)
        assert not sink.delays()["good"].is_stale
        hung.set()
