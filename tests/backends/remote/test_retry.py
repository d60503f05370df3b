import asyncio
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from vinelm.backends.remote.retry import BILLED_ATTEMPTS, RETRIES, AttemptFailed, RetryPolicy, retry_after_s


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "20", "retry-after": "7"}, 0.02),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": format_datetime(datetime.fromtimestamp(1_030, UTC), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(datetime.fromtimestamp(900, UTC), usegmt=True)}, 0.0),
    ],
)
def test_what_a_server_asks_to_wait(headers, seconds):
    assert retry_after_s(headers, now=lambda: 1_000.0) == seconds


def attempts(policy, failed, *, billed=False):
    """(attempts made, waits between) of a call that always fails so."""
    made, waits = [], []

    def may_repeat(error):
        return policy.may_repeat(error, len(made), len(made) if billed else 0)

    def call():
        for attempt in policy.sync(may_repeat, waits.append):
            with attempt:
                made.append(1)
                raise failed

    with pytest.raises(AttemptFailed) as raised:
        call()
    assert raised.value is failed
    return len(made), waits


@pytest.mark.parametrize("kind", ["rate_limit", "server", "timeout", "malformed", "auth", "truncated", "empty"])
def test_attempts_by_kind(kind):
    made, waits = attempts(RetryPolicy(), AttemptFailed(kind, "x"))
    assert made == 1 + RETRIES.get(kind, 0)
    for number, wait_s in enumerate(waits):
        assert 0 <= wait_s <= 0.5 * 2**number


def test_caps():
    failed = AttemptFailed("rate_limit", "x")
    assert attempts(RetryPolicy(max_retries=2), failed)[0] == 3
    assert attempts(RetryPolicy(), failed, billed=True)[0] == BILLED_ATTEMPTS
    assert attempts(RetryPolicy(), AttemptFailed("server", "x", is_final=True))[0] == 1
    assert max(attempts(RetryPolicy(max_wait_s=0.01), failed)[1]) <= 0.01


def test_retry_after_is_a_lower_bound():
    _, waits = attempts(RetryPolicy(max_wait_s=5.0), AttemptFailed("rate_limit", "x", retry_after_s=4.9))
    assert len(waits) == 5
    assert all(4.9 <= wait_s <= 5.0 for wait_s in waits)
    assert attempts(RetryPolicy(max_wait_s=5.0), AttemptFailed("rate_limit", "x", retry_after_s=5.1)) == (1, [])


def test_coroutines_wait_alike():
    made, waits = [], []

    async def sleep(seconds):
        waits.append(seconds)

    async def call():
        async for attempt in RetryPolicy().asynchronous(lambda failed: len(made) < 3, sleep):
            with attempt:
                made.append(1)
                raise AttemptFailed("server", "x", retry_after_s=1.0)

    with pytest.raises(AttemptFailed):
        asyncio.run(call())
    assert len(waits) == 2
    assert min(waits) >= 1.0


def test_other_errors_pass():
    def call():
        for attempt in RetryPolicy().sync(lambda failed: True, lambda seconds: None):
            with attempt:
                raise KeyError

    with pytest.raises(KeyError):
        call()
