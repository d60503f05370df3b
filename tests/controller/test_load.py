import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import random_table

from vinelm.controller.engines import requests_in_metrics, sglang_requests, vllm_requests
from vinelm.controller.load import EnginePoller, OwnLoad, ReportedLoad
from vinelm.controller.planner import Planner
from vinelm.controller.session import Session
from vinelm.controller.slowdown import SlowdownCurve
from vinelm.errors import ConfigError, VineLMError
from vinelm.objective import Objective
from vinelm.observation import Usage
from vinelm.protocols import Invocation, VirtualClock

LINE = SlowdownCurve((0.0, 10.0), (0.0, 5.0))  # half a second per request


def test_own_calls_in_flight_load_an_engine():
    monitor = OwnLoad({"east": LINE}, clock=VirtualClock())
    for _ in range(4):
        monitor.dispatched("east")
    assert monitor.delays()["east"].extra_s == 2.0
    monitor.finished("east", None)
    assert monitor.delays()["east"].extra_s == 1.5
    assert "west" not in monitor.delays()


def test_own_latencies_tell_where_no_curve_is_known_until_they_are_old():
    clock = VirtualClock()
    monitor = OwnLoad(clock=clock)
    for excess in (2.0, 2.1, 1.9, 2.0, 2.0, 2.0):
        monitor.dispatched("east")
        monitor.finished("east", excess)
    assert 1.9 < monitor.delays()["east"].extra_s <= 2.0
    clock.sleep(31.0)
    assert monitor.delays()["east"].extra_s == 0.0
    for _ in range(9):
        monitor.finished("west", -1.0)
    assert monitor.delays()["west"].extra_s == 0.0


def test_an_old_report_is_corrected_by_what_we_sent_since():
    clock = VirtualClock()
    monitor = ReportedLoad({"east": LINE}, clock=clock)
    monitor.dispatched("east")  # before the first report: in the report already
    monitor.report("east", 4)
    assert monitor.delays()["east"].extra_s == 2.0
    clock.sleep(10.0)
    for _ in range(6):
        monitor.dispatched("east")
    monitor.finished("east", 0.1)
    delay = monitor.delays()["east"]
    assert (delay.extra_s, delay.is_stale) == (4.5, True)
    for _ in range(30):
        monitor.finished("east", None)
    assert monitor.delays()["east"].extra_s == 0.0
    monitor.report("east", 1)
    assert (monitor.delays()["east"].extra_s, monitor.delays()["east"].is_stale) == (0.5, False)
    clock.sleep(61.0)
    assert monitor.delays() == {}


def test_without_the_correction_an_old_report_stays_as_it_was():
    monitor = ReportedLoad({"east": LINE}, clock=VirtualClock(), has_correction=False)
    monitor.report("east", 4)
    monitor.dispatched("east")
    assert monitor.delays()["east"].extra_s == 2.0


def test_a_session_tells_its_monitor_and_plans_with_it():
    planner = Planner(random_table(3, n_requests=60, n_models=2, depth=3).annotate())
    monitor = ReportedLoad({"east": LINE, "west": LINE}, clock=VirtualClock())
    monitor.report("east", 60)
    monitor.report("west", 0)
    objective = Objective(maximize="accuracy", max_latency_s=5.0)
    session = Session(planner, objective, clock=VirtualClock(), load=monitor)
    assert session.next("generate", ()) == "m1"
    assert monitor.delays()["west"].extra_s == 0.5
    usage = Usage(model="m1", cost_usd=0.0, latency_s=1.0)
    session.record(Invocation(stage="generate", prefix=("m1",), latency_s=1.0, usages=(usage,)))
    assert monitor.delays()["west"].extra_s == 0.0


class Deaf:
    def delays(self):
        raise OSError

    dispatched = finished = delays


def test_a_monitor_that_raises_costs_nothing():
    planner = Planner(random_table(3, n_requests=60, n_models=2, depth=3).annotate())
    objective = Objective(maximize="accuracy", max_latency_s=5.0)
    session = Session(planner, objective, clock=VirtualClock(), load=Deaf())
    assert session.next("generate", ()) == planner.plan(objective).next_model
    session.record(Invocation(stage="generate", prefix=("m0",), latency_s=1.0))
    assert "no load known" in session.steps[0].note


PAGES = {
    "/v1/loads?include=core": '{"loads": [{"num_running_reqs": 3, "num_waiting_reqs": 2}, '
    '{"num_running_reqs": 1, "num_waiting_reqs": 0}]}',
    "/get_load": '[{"dp_rank": 0, "num_reqs": 7, "num_waiting_reqs": 2}]',
    "/metrics": "# TYPE vllm:num_requests_running gauge\n"
    'vllm:num_requests_running{model_name="a"} 4.0\nvllm:num_requests_waiting{model_name="a"} 1.0\n',
}


@pytest.fixture
def engine():
    known = dict(PAGES)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page = known.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, *unused):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", known
    server.shutdown()
    server.server_close()
    thread.join()


def test_engines_tell_how_many_requests_they_hold(engine):
    url, known = engine
    assert sglang_requests(url + "/v1")() == 6
    assert vllm_requests(url)() == 5
    del known["/v1/loads?include=core"]
    older = sglang_requests(url)
    assert older() == 7
    del known["/get_load"]
    assert older() == 5


def test_pages_that_tell_nothing_are_errors(engine):
    url, known = engine
    known["/metrics"] = "up 1\n"
    with pytest.raises(VineLMError, match="metrics"):
        vllm_requests(url)()
    known["/v1/loads?include=core"] = "{}"
    with pytest.raises(VineLMError, match="names no requests"):
        sglang_requests(url)()
    with pytest.raises(ConfigError, match="no URL"):
        vllm_requests("localhost:8000")
    sglang = 'sglang:num_running_reqs{model_name="m"} 2.0\nsglang:num_queue_reqs{model_name="m"} 3.0\n'
    assert requests_in_metrics(sglang) == 5


def test_a_poller_keeps_asking_and_a_failing_engine_delays_nobody(engine):
    url, _ = engine
    clock = VirtualClock()
    sink = ReportedLoad({"good": LINE, "bad": LINE, "hung": LINE}, clock=clock)
    asked = threading.Event()
    hung = threading.Event()

    def good():
        try:
            return vllm_requests(url)()
        finally:
            asked.set()

    def bad():
        raise OSError

    with EnginePoller({"good": good, "bad": bad, "hung": hung.wait}, sink, every_s=0.01) as poller:
        assert asked.wait(10)
        while "good" not in sink.delays() or "bad" not in poller.failures:
            threading.Event().wait(0.005)
        assert set(sink.delays()) == {"good"}
        hung.set()
    assert poller.failures == {"bad": "OSError"}
