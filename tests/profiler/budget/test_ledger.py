"""Money: reserved before, settled after, never past the cap by more than what calls exceeded their bound."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.catalogs import make_catalog

from vinelm.errors import BudgetExhausted
from vinelm.profiler import ProfileLimits
from vinelm.profiler.execution.ledger import Ledger, PriceBound
from vinelm.rows.observation import Observation
from vinelm.traces import ObservationStore
from vinelm.traces.testing import a_row, an_identity


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    cap=st.floats(0, 3),
    units=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.sampled_from(["settle", "die"])), max_size=12),
)
def test_the_cap_holds_but_for_the_excess_over_bounds(tmp_path_factory, cap, units):
    store = ObservationStore.create(tmp_path_factory.mktemp("ledger") / "s.db", an_identity())
    ledger = Ledger(store, ProfileLimits(budget_usd=cap))
    excess = 0.0
    for i, (bound, real, fate) in enumerate(units):
        row = a_row(f"q{i}", cost_usd=real)
        try:
            entry = ledger.reserve(row.request_id, row.prefix, bound)
        except BudgetExhausted:
            assert store.committed_usd() + bound > cap - 1e-6
            continue
        if fate == "die":  # the run is gone; the next one takes over
            ledger = Ledger(store, ProfileLimits(budget_usd=cap))
            assert ledger.abandoned == 1
            continue
        excess += max(real - bound, 0.0)
        ledger.settle(entry, row, None)
        assert ledger.committed_usd == pytest.approx(store.committed_usd())
    assert store.committed_usd() <= cap + excess + 1e-6
    store.close()


def row(cost_usd=0.0, tokens_in=None, calls=1, tool_cost_usd=0.0, model="m1") -> Observation:
    return a_row(prefix=(model,), cost_usd=cost_usd, tokens_in=tokens_in, calls=calls, tool_cost_usd=tool_cost_usd)


def test_the_bound_of_a_unit_is_its_longest_prompt_and_its_full_completion():
    catalog = make_catalog(2, max_tokens=1000)  # m1: $2 in, $8 out per million tokens
    bound = PriceBound(catalog)
    assert bound.usd("generate", "m1") == pytest.approx((2048 * 2 + 1000 * 8) / 1e6)
    bound.add(row(tokens_in=100))
    bound.add(row(tokens_in=400))
    bound.add(row(tokens_in=200))
    assert bound.usd("generate", "m1") == pytest.approx((600 * 2 + 1000 * 8) / 1e6)
    assert bound.usd("generate", "m0") == pytest.approx((600 * 1 + 1000 * 4) / 1e6)
    assert bound.usd("repair", "m1") == pytest.approx((2048 * 2 + 1000 * 8) / 1e6)


def test_the_bound_counts_the_calls_of_a_stage_its_tools_and_prices_that_no_token_explains():
    bound = PriceBound(make_catalog(2, max_tokens=1000))
    bound.add(row(tokens_in=100, calls=3, tool_cost_usd=0.5))
    assert bound.usd("generate", "m1") == pytest.approx(3 * (150 * 2 + 1000 * 8) / 1e6 + 0.75)
    bound.add(row(tokens_in=100, cost_usd=2.0))
    assert bound.usd("generate", "m1") == pytest.approx(2.75)
    assert bound.usd("generate", "m0") == pytest.approx(3 * (150 * 1 + 1000 * 4) / 1e6 + 0.75)
