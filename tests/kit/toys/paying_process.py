"""Reserves, pays and settles units on a store in PostgreSQL as fast as it can, until the cap is reached or it is killed.

python -m kit.toys.paying_process ADDRESS NAME BILL CAP_USD SEED: each call is a line in the file BILL the moment it is made,
as a provider would count it. Prints "started" before the first.
"""

import os
import random
import sys

from vinelm.errors import BudgetExhausted
from vinelm.profiler import ProfileLimits
from vinelm.profiler.execution.ledger import Ledger
from vinelm.traces import ObservationStore
from vinelm.traces.store.shared_run import shared_run
from vinelm.traces.testing import a_row


def main(address, name, bill, cap_usd, seed):
    order = random.Random(int(seed))
    provider = os.open(bill, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with ObservationStore.open(address) as store, shared_run(store) as shared:
        ledger = Ledger(store, ProfileLimits(budget_usd=float(cap_usd)), shared=shared)
        print("started", flush=True)
        for number in range(10_000):
            cell = f"{name}-{number}", ("small",)
            try:
                entry = ledger.reserve(*cell, 0.3)
                if order.random() < 0.3 and not ledger.top_up(entry, 0.5):
                    return
            except BudgetExhausted:
                return
            price = order.uniform(0.05, 1.0) * entry.upper_usd
            os.write(provider, f"{price!r}\n".encode())
            if order.random() < 0.1:
                ledger.settle_without_row(entry, price)
            else:
                ledger.settle(entry, a_row(*cell, cost_usd=price), b"state")


if __name__ == "__main__":
    main(*sys.argv[1:])
