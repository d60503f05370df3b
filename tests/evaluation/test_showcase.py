import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.tables import random_table

from vinelm.evaluation.plans.path_plans import PathPlans
from vinelm.evaluation.plans.sweep import _two_figures_up, showcase


@given(st.integers(0, 300))
def test_every_policy_can_meet_every_showcase_objective(seed):
    plans = PathPlans(random_table(seed, n_requests=15, n_models=2, depth=3).annotate())
    for objective in showcase(plans):
        for role in ("vinelm", "static", "single"):
            assert plans.of_role(objective, role) is not None


@given(st.floats(1e-7, 1e4))
def test_two_figures_are_rounded_up_by_less_than_a_tenth(value):
    rounded = _two_figures_up(value)
    assert value * (1 - 1e-9) <= rounded <= value * 1.1 * (1 + 1e-9)
    assert len(f"{rounded:.1e}".split("e")[0]) == 3
    assert float(f"{rounded:.1e}") == pytest.approx(rounded, rel=1e-9)
