"""What authorizes the calls of one run: the guard of its policy, and beside it an account that requests share."""

from __future__ import annotations

from collections.abc import Callable

from vinelm.policies import BoundGuard, GuardPair
from vinelm.requests.protocols import CallGuard


def with_account(
    guard: CallGuard | None, account: CallGuard | None, note: Callable[[str, BaseException], None] | None
) -> CallGuard | None:
    """Return what asks the account of a run first, and then ``guard``.

    Once the account cannot be asked any more, the run's further calls are refused: what other requests have spent meanwhile
    only the account knows.

    Args:
        guard: of the run alone; None if there is none.
        account: the account; None if there is none.
        note: called with what has failed and the error; None: failures are raised instead.
    """
    if account is None:
        return guard
    both = account if guard is None else GuardPair(account, guard)
    return both if note is None else BoundGuard(both, None, note)


__all__ = ["with_account"]
