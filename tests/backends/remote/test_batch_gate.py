"""What the gate of batches does when a provider's answer to a submission is late, lost or a refusal."""

import time
from types import SimpleNamespace

import pytest

from vinelm.backends.remote.batches import BatchedUnit, BatchGate, BatchTimes
from vinelm.backends.remote.provider import FoundBatch
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.requests.protocols import OpenBatch

MODEL = SimpleNamespace(name="m", provider="p", model_id="x")


class Records:
    def __init__(self):
        self.log = []

    def record(self, key, model, calls):
        self.log.append("recorded")
        return OpenBatch(len(self.log), key, model, None, len(calls), time.time())

    def submitted(self, batch_id, provider_id):
        self.log.append(provider_id)

    def forget(self, batch_id):
        self.log.append("forgotten")

    def open(self):
        return []

    def provider_ids(self):
        return frozenset()

    def calls_of(self, batch_id):
        return ["d0"]

    def find(self, digest):
        return None


class Api:
    halves_cache, most_calls, most_bytes, REST = False, 10, 10**9, "*"

    def __init__(self):
        self.submits = self.finds = 0

    def answers(self, model, provider_id):
        return None

    def close(self):
        pass


@pytest.fixture
def gate_of():
    made = []

    def make(api, **times):
        gate, records = BatchGate({"m": (MODEL, api)}, BatchTimes(wait_s=60.0, collect_s=0.02, **times)), Records()
        gate.start(records)
        made.append(gate)
        numbers = iter(range(100))
        unit = BatchedUnit(("r", ("m",)))
        return (lambda: gate.ask(MODEL, {}, unit, 1.0, f"d{next(numbers)}")), records

    yield make
    for gate in made:
        gate.close()


def test_a_slow_submission_whose_answer_is_lost_is_not_bought_again_for_one_look_at_a_list_that_lags(gate_of):
    """The upload alone takes longer than a list may lag: what counts is the time since it ended."""

    class Slow(Api):
        def submit(self, model, key, calls):
            self.submits += 1
            time.sleep(0.6)
            raise AttemptFailed("timeout", "cut", may_be_billed=True)

        def find(self, *_):
            self.finds += 1
            return FoundBatch(None if self.finds < 3 else "id1")

    api = Slow()
    ask, records = gate_of(api, quiet_s=0.005, poll_s=0.02, settle_s=0.5)
    ask()
    until_s = time.monotonic() + 20.0
    while records.log[-1:] != ["id1"] and time.monotonic() < until_s:
        time.sleep(0.01)
    assert records.log == ["recorded", "id1"]
    assert api.submits == 1


def test_each_wave_is_submitted_as_often_as_the_first(gate_of):
    class Full(Api):
        def submit(self, model, key, calls):
            self.submits += 1
            raise AttemptFailed("rate_limit", "its queue is full", may_be_billed=False)

    api = Full()
    ask, _ = gate_of(api, quiet_s=0.002, poll_s=0.02, settle_s=0.1)
    for wave in (1, 2):
        assert ask().result(20)["failure"] == "rate_limit"
        assert api.submits == 6 * wave
