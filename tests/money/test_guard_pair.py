import pytest

from vinelm.errors import CallRefused
from vinelm.money.guard_pair import GuardPair
from vinelm.money.spend_guard import SpendGuard
from vinelm.rows.observation import Usage

PAID = Usage(model="m", cost_usd=0.25, latency_s=0.0)


def test_both_count_what_the_call_cost():
    account, guard = SpendGuard(10.0), SpendGuard(1.0)
    permit = GuardPair(account, guard).authorize(0.5)
    assert (account.reserved_usd, guard.reserved_usd) == (0.5, 0.5)
    permit.settle(PAID)
    permit.close()  # without effect
    assert [(one.spent_usd, one.reserved_usd) for one in (account, guard)] == [(0.25, 0.0)] * 2


def test_a_call_that_nobody_settles_counts_at_its_bound_with_both():
    account, guard = SpendGuard(10.0), SpendGuard(1.0)
    GuardPair(account, guard).authorize(0.5).close()
    assert (account.spent_usd, guard.spent_usd) == (0.5, 0.5)


@pytest.mark.parametrize("limits", [(10.0, 0.1), (0.1, 10.0)])
def test_either_may_refuse_and_then_neither_counts_the_call(limits):
    account, guard = map(SpendGuard, limits)
    with pytest.raises(CallRefused):
        GuardPair(account, guard).authorize(0.5)
    assert [(one.spent_usd, one.reserved_usd) for one in (account, guard)] == [(0.0, 0.0)] * 2
