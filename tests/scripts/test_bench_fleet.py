"""The simulated fleet of `bench_fleet.py`: deterministic, exact where that is known, and its processes know their part."""

import gzip
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("simpy")

from fleet_parts import memory_link, serving, simulation, study, workload

REQUESTS = 60


@pytest.fixture(scope="module")
def parts():
    return {"link": memory_link, "serving": serving, "simulation": simulation, "study": study, "workload": workload}


@pytest.fixture(scope="module")
def serve(parts):
    """Serves the same few requests, arriving so many seconds apart on average, under a setting."""
    workload, simulation = parts["workload"].fleet_workload(), parts["simulation"]
    table = parts["workload"].requests(REQUESTS, 5)

    def served(apart_s, **setting):
        times = np.cumsum(np.random.default_rng(3).exponential(apart_s, REQUESTS))
        return simulation.serve_all(workload, table, times, simulation.FleetSetting(**{"risk": "mean", **setting}))

    return served, table


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("latency_s", "is_right", "cost_usd"))


def test_a_run_is_repeated_exactly_and_another_seed_differs(serve):
    served, _ = serve
    first = served(0.05, knowledge="fleet", processes=4, seed=1)
    assert same(first, served(0.05, knowledge="fleet", processes=4, seed=1))
    assert not same(first, served(0.05, knowledge="fleet", processes=4, seed=2))


def test_one_process_that_hears_everything_at_once_is_the_omniscient_one(serve):
    served, _ = serve
    assert same(served(0.05, knowledge="all"), served(0.05, knowledge="fleet", processes=1, every_s=0.0))


def test_without_load_all_serve_alike_at_the_recorded_seconds(serve, parts):
    served, table = serve
    found = {known: served(1000.0, knowledge=known, processes=3, every_s=2000.0) for known in parts["simulation"].KNOWLEDGE}
    first = found["own"]
    paths = table.trie.accumulate(table.latency_s)
    assert all(np.isclose(paths[row], seconds).any() for row, seconds in enumerate(first.latency_s))
    for other in found.values():
        assert np.allclose(other.latency_s, first.latency_s, atol=1e-6)


def test_load_makes_requests_late_and_knowing_of_it_less_so(serve):
    served, _ = serve
    idle, alone, knowing = (
        served(apart_s, knowledge=known, slo_s=6.0) for apart_s, known in ((1000.0, "own"), (0.02, "own"), (0.02, "all"))
    )
    assert idle.latency_s.mean() < knowing.latency_s.mean() < alone.latency_s.mean()


def test_uneven_traffic_is_half_for_the_busy_ones(parts):
    setting = parts["simulation"].FleetSetting("own", processes=5, busy=2)
    assert parts["simulation"]._shares(setting).tolist() == pytest.approx([0.25, 0.25, 1 / 6, 1 / 6, 1 / 6])


class Stopped:
    """A clock that stands still."""

    def now(self):
        return 0.0

    def sleep(self, seconds):
        raise AssertionError("nothing waits here")


def test_processes_know_what_they_are_said_to_know(parts):
    workload, link = parts["workload"].fleet_workload(), parts["link"].MemoryLink()
    one, other = (parts["serving"].ServingProcess(number, workload, Stopped(), link) for number in (0, 1))
    objective = parts["simulation"].Objective(maximize="accuracy", max_latency_s=9.0)
    curve = workload.curves["large"]

    def extra_s(process):
        found = process.monitor.delays().get("large")
        return 0.0 if found is None else found.extra_s

    session = other.session(1, objective)
    assert session.next_model("answer", ()) == "large"
    assert extra_s(other) == curve.at(1) > 0
    assert extra_s(one) == 0.0
    one.see_others()
    assert extra_s(one) == 0.0  # nothing was published yet
    other.member.round()
    one.member.round()
    assert extra_s(one) == curve.at(1)
    other.suppose_others(16)
    with other.call(session, "answer", ("large",)):
        assert extra_s(other) == curve.at(16)
    assert extra_s(other) == curve.at(1)


def test_arrivals_are_a_stretch_of_the_trace_at_the_rate(parts, tmp_path):
    (tmp_path / "arrivals").mkdir()
    gaps = np.random.default_rng(0).exponential(1.0, 500)
    lines = ["arrival_s,tokens_in,tokens_out", *(f"{at:.6f},1,1" for at in np.cumsum(gaps))]
    for name in parts["workload"].TRACES.values():
        (tmp_path / "arrivals" / name).write_bytes(gzip.compress("\n".join(lines).encode()))
    times = parts["workload"].arrivals(tmp_path, "azure", 101, 4.0, 7)
    assert len(times) == 101
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(101 / 4.0)
    ours = np.diff(times) / times[-1]
    stretches = [gaps[at : at + 100] / gaps[at : at + 100].sum() for at in range(1, 400)]
    assert any(np.allclose(ours, stretch, atol=1e-5) for stretch in stretches)


@pytest.mark.parametrize("limit", [1.5, 7.0, 40.0])
def test_the_sustained_rate_is_the_first_that_has_too_many_late(parts, monkeypatch, limit):
    study = parts["study"]
    case = study.Case(Path(), "azure", 0, 10)

    def late(case, setting, per_second):
        return study.Figures(per_second, 0.01 if per_second <= limit else 0.06, 1.0, 2.0, 1.0, 0.0)

    monkeypatch.setattr(study, "run", late)
    found = study.sustained(case, parts["simulation"].FleetSetting("own"))
    assert limit / study.STEP ** (1 / 2**study.HALVINGS) <= found <= limit


def test_no_rate_is_no_rate(parts, monkeypatch):
    study = parts["study"]
    monkeypatch.setattr(study, "run", lambda case, setting, rate: study.Figures(rate, 0.5, 1.0, 2.0, 1.0, 0.0))
    assert study.sustained(study.Case(Path(), "azure", 0, 10), parts["simulation"].FleetSetting("own")) == 0.0


def test_the_page_compares_case_by_case(parts):
    study = parts["study"]

    def case(scale):
        rates = {known: scale * (1.0 + at) for at, known in enumerate(study.KNOWLEDGE)}
        figures = {known: study.Figures(1.0, 0.1, 1.0, 10.0 - at, 0.8, 0.1) for at, known in enumerate(study.KNOWLEDGE)}
        return {"trace": "azure", "seed": 0, "rates": rates, "uneven": rates, "loads": dict.fromkeys(study.OVERLOADS, figures)}

    none = replace_rates(case(1.0), 0.0)
    found = study.page_figures([case(1.0), case(3.0), none])
    assert (found["cases"], found["cases_without_a_rate"]) == (2, 1)
    assert found["rate"]["all"]["over_own"]["mean"] == pytest.approx(5.0)
    assert found["rate"]["all"]["over_own"]["low"] == pytest.approx(5.0)
    assert found["loads"]["1.5"]["all"]["p99_over_own"]["mean"] == pytest.approx(0.6)
    spread = study.ratio(np.array([2.0, 8.0]), np.array([1.0, 1.0]))
    assert spread["mean"] == pytest.approx(4.0)
    assert spread["low"] < 2.0
    assert spread["high"] > 8.0


def replace_rates(case, rate):
    return case | {"rates": dict.fromkeys(case["rates"], rate), "loads": {}}
