import numpy as np
import pytest
from kit.tables import random_table

pytest.importorskip("simpy")

from science.replay import replay
from science.simulator import (
    SimulatedEngine,
    SimulationSettings,
    replanning_chooser,
    simulate,
    simulated_slowdown,
    static_chooser,
)

from vinelm.controller import Planner, SlowdownCurve
from vinelm.errors import ConfigError
from vinelm.objective import Objective

FLAT = {name: SlowdownCurve((0.0,), (0.0,)) for name in ("east", "west")}
ROOMY = tuple(SimulatedEngine(name, slots=1000, slope=0.0) for name in ("east", "west"))


@pytest.fixture
def table():
    return random_table(7, n_requests=40, n_models=2, depth=3)


def same(one, other):
    np.testing.assert_array_equal(one.node, other.node)
    np.testing.assert_array_equal(one.success, other.success)
    np.testing.assert_allclose(one.latency_s, other.latency_s)
    np.testing.assert_allclose(one.cost_usd, other.cost_usd)


def test_empty_engines_give_what_a_replay_gives(table):
    table.latency_s[:, 0] = 0.0
    planner = Planner(table.annotate())
    setting = SimulationSettings(engines=ROOMY, curves=FLAT)
    arrivals = np.linspace(0, 5, 40)
    same(simulate(table, arrivals, static_chooser(("m1", "m0"), planner), setting), replay(table, ("m1", "m0")))
    objective = Objective(maximize="accuracy", max_latency_s=2.5)
    same(simulate(table, arrivals, replanning_chooser(planner, objective), setting), replay(table, planner, objective))


def test_a_full_engine_makes_requests_wait_in_line(table):
    table.latency_s[:] = 1.0
    table.stopped[:] = True
    table.stopped[:, 0] = False
    planner = Planner(table.annotate())
    narrow = (SimulatedEngine("east", slots=2, slope=0.0), ROOMY[1])
    found = simulate(table, np.zeros(40), static_chooser(("m0",), planner), SimulationSettings(engines=narrow, curves=FLAT))
    np.testing.assert_allclose(np.sort(found.latency_s), np.repeat(np.arange(1.0, 21.0), 2))


def test_requests_side_by_side_slow_each_other_down(table):
    table.latency_s[:] = 1.0
    table.stopped[:, 1:] = True
    planner = Planner(table.annotate())
    slow = (SimulatedEngine("east", slots=40, slope=0.5), ROOMY[1])
    arrivals = np.arange(40) / 100
    found = simulate(table, arrivals, static_chooser(("m0",), planner), SimulationSettings(engines=slow, curves=FLAT))
    np.testing.assert_allclose(found.latency_s, 1.0 + 0.5 * np.arange(40))


def test_a_calibrated_curve_rises_with_the_queue():
    curve = simulated_slowdown(SimulatedEngine("east", slots=4, slope=0.1), [1.0, 1.5, 0.5], repeats=20)
    assert curve.at(0) == 0
    assert curve.at(4) < curve.at(16) < curve.at(32)
    assert curve.at(32) > 5


def test_a_policy_that_sees_the_load_goes_elsewhere(table):
    table.latency_s[:] = 1.0
    planner = Planner(table.annotate())
    engines = (SimulatedEngine("east", slots=1, slope=0.0, others_per_s=3.0), ROOMY[1])
    curves = FLAT | {"east": SlowdownCurve((0.0, 1.0), (0.0, 1.0))}
    objective = Objective(minimize="latency")
    arrivals = np.arange(40) * 3.0 + 30.0
    found = simulate(
        table, arrivals, replanning_chooser(planner, objective), SimulationSettings(engines=engines, curves=curves)
    )
    assert (found.latency_s[-20:] == 1.0).mean() > 0.9
    old = SimulationSettings(engines=engines, curves=curves, load_age_s=10.0)
    again = simulate(table, arrivals, replanning_chooser(planner, objective), old)
    same(again, simulate(table, arrivals, replanning_chooser(planner, objective), old))


def test_every_engine_of_the_catalog_must_be_simulated(table):
    planner = Planner(table.annotate())
    with pytest.raises(ConfigError, match="'west' is not simulated"):
        simulate(table, [0.0], static_chooser(("m0",), planner), SimulationSettings(engines=ROOMY[:1], curves=FLAT))
