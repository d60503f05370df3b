import pytest
from kit.tables import random_table

from vinelm.clock import VirtualClock
from vinelm.controller import InFlightLoadMonitor, Planner, ReportedLoadMonitor, Session, SlowdownCurve
from vinelm.controller.testing import LoadMonitorContract
from vinelm.errors import VineLMError
from vinelm.objective import Objective
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage

LINE = SlowdownCurve((0.0, 10.0), (0.0, 5.0))  # half a second per request


class TestInFlightLoadMonitor(LoadMonitorContract):
    def make(self):
        return InFlightLoadMonitor({"east": LINE}, clock=VirtualClock())


class TestInFlightLoadMonitorWithoutCurves(LoadMonitorContract):
    def make(self):
        return InFlightLoadMonitor(clock=VirtualClock())


class TestReportedLoadMonitor(LoadMonitorContract):
    def make(self):
        monitor = ReportedLoadMonitor({"east": LINE}, clock=VirtualClock())
        monitor.report("east", 3)
        return monitor


class TestReportedLoadMonitorBeforeAnyReport(LoadMonitorContract):
    def make(self):
        return ReportedLoadMonitor({"east": LINE}, clock=VirtualClock())


class TestReportedLoadMonitorWithoutCorrection(LoadMonitorContract):
    def make(self):
        monitor = ReportedLoadMonitor({"east": LINE}, clock=VirtualClock(), has_correction=False)
        monitor.report("east", 3)
        return monitor


def test_own_calls_in_flight_load_an_engine():
    monitor = InFlightLoadMonitor({"east": LINE}, clock=VirtualClock())
    for _ in range(4):
        monitor.dispatched("east")
    assert monitor.delays()["east"].extra_s == 2.0
    monitor.finished("east", None)
    assert monitor.delays()["east"].extra_s == 1.5
    assert "west" not in monitor.delays()


def test_own_latencies_tell_where_no_curve_is_known_until_they_are_old():
    clock = VirtualClock()
    monitor = InFlightLoadMonitor(clock=clock)
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
    monitor = ReportedLoadMonitor({"east": LINE}, clock=clock)
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
    monitor = ReportedLoadMonitor({"east": LINE}, clock=VirtualClock(), has_correction=False)
    monitor.report("east", 4)
    monitor.dispatched("east")
    assert monitor.delays()["east"].extra_s == 2.0


def test_a_session_tells_its_monitor_and_plans_with_it():
    planner = Planner(random_table(3, n_requests=60, n_models=2, depth=3).annotate())
    monitor = ReportedLoadMonitor({"east": LINE, "west": LINE}, clock=VirtualClock())
    monitor.report("east", 60)
    monitor.report("west", 0)
    objective = Objective(maximize="accuracy", max_latency_s=5.0)
    session = Session(planner, objective, clock=VirtualClock(), load=monitor)
    assert session.next_model("generate", ()) == "m1"
    assert monitor.delays()["west"].extra_s == 0.5
    usage = Usage(model="m1", cost_usd=0.0, latency_s=1.0)
    session.record(Invocation(stage="generate", prefix=("m1",), latency_s=1.0, usages=(usage,)))
    assert monitor.delays()["west"].extra_s == 0.0


class Deaf:
    """Breaks the contract of load monitors: every method raises."""

    def delays(self):
        raise OSError

    dispatched = finished = delays


def test_a_monitor_that_raises_costs_nothing():
    planner = Planner(random_table(3, n_requests=60, n_models=2, depth=3).annotate())
    objective = Objective(maximize="accuracy", max_latency_s=5.0)
    session = Session(planner, objective, clock=VirtualClock(), load=Deaf())
    assert session.next_model("generate", ()) == planner.plan(objective).next_model
    session.record(Invocation(stage="generate", prefix=("m0",), latency_s=1.0))
    assert "no load known" in session.steps[0].note


def test_a_clock_that_jumps_back_makes_a_report_stale_and_not_fresh_for_good():
    clock = VirtualClock(1000.0)
    monitor = ReportedLoadMonitor({"east": LINE}, clock=clock)
    monitor.report("east", 4)
    clock.seconds = 10.0
    assert (monitor.delays()["east"].extra_s, monitor.delays()["east"].is_stale) == (2.0, True)
    monitor.report("east", 2)
    assert (monitor.delays()["east"].extra_s, monitor.delays()["east"].is_stale) == (1.0, False)


@pytest.mark.parametrize("requests", [float("nan"), float("inf"), -1.0])
def test_a_report_that_is_no_number_of_requests_is_refused_and_the_last_one_stays(requests):
    monitor = ReportedLoadMonitor({"east": LINE}, clock=VirtualClock())
    monitor.report("east", 4)
    with pytest.raises(VineLMError, match="'east' cannot hold"):
        monitor.report("east", requests)
    assert monitor.delays()["east"].extra_s == 2.0


def test_one_latency_that_is_no_number_does_not_blind_the_monitor():
    monitor = InFlightLoadMonitor(clock=VirtualClock())
    for excess in (2.0, float("nan"), 2.0, float("inf"), 2.0, 2.0, 2.0):
        monitor.dispatched("east")
        monitor.finished("east", excess)
    assert monitor.delays()["east"].extra_s == pytest.approx(2.0)


def test_calls_of_ours_that_are_lost_count_only_until_the_next_report():
    monitor = ReportedLoadMonitor({"east": LINE}, clock=VirtualClock())
    monitor.report("east", 0)
    for _ in range(8):
        monitor.dispatched("east")  # and none of them ever comes back
    assert monitor.delays()["east"].extra_s == 4.0
    monitor.report("east", 0)
    assert monitor.delays()["east"].extra_s == 0.0
