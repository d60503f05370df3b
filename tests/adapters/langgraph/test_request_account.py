"""What a request's account knows after a write that failed: the call was not made, and stands for no other."""

import asyncio

import pytest

from vinelm.adapters.langgraph.accounts.at_once import at_once
from vinelm.adapters.langgraph.accounts.request_account import RequestAccount
from vinelm.adapters.langgraph.accounts.thread_accounts import Beginning, FoundAccount
from vinelm.errors import CallRefused
from vinelm.money.spend_guard import SpendGuard
from vinelm.rows.observation import Usage


class Accounts:
    """Written into a list; while ``fails``, a write raises that."""

    def __init__(self):
        self.written, self.fails = [], None

    async def find(self, begun, *, is_async):
        return FoundAccount("a", 0.0)

    async def pay(self, found, usd, begun, *, is_async):
        if self.fails is not None:
            raise self.fails
        self.written.append(usd)


@pytest.mark.parametrize("fails", [OSError("disk"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_a_call_whose_reservation_was_not_written_stands_for_no_call_without_a_permit(fails):
    accounts, guard = Accounts(), SpendGuard(1.0)
    account = RequestAccount(guard, accounts, print, lambda what, error: None)
    at_once(account.open(Beginning("c"), is_async=False))
    accounts.fails = fails
    with pytest.raises((CallRefused, type(fails))):
        account.authorize(0.3)
    accounts.fails = None
    assert guard.reserved_usd == guard.spent_usd == 0.0
    account.recorded(0.2)  # of a backend that asks no guard
    at_once(account.settle(is_async=False))
    assert sum(accounts.written) == pytest.approx(0.2)
    permit = account.authorize(0.3)
    permit.settle(Usage(model="m", cost_usd=0.1, latency_s=0.0))
    account.recorded(0.1)
    at_once(account.settle(is_async=False))
    assert sum(accounts.written) == pytest.approx(0.3)
