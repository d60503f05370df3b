"""What an invocation showed: answers of several keys, of which a later stage sets some."""

import pytest

from vinelm.errors import WorkflowError
from vinelm.profiler.execution.outcome import with_shown
from vinelm.rows.observation import Observation
from vinelm.signals import Signals
from vinelm.template import Stage

ROW = Observation(request_id="q0", prefix=("m0",), stage="classify", success=True, stopped=False, cost_usd=0.1, latency_s=1.0)
TWO_KEYS = Signals(answer=("category", "order"))


def test_before_the_first_answerable_stage_a_part_of_the_answer_is_none():
    stage = Stage("classify", answerable=False)
    assert with_shown(ROW, TWO_KEYS, {"category": "refund"}, stage).answer is None
    assert with_shown(ROW, TWO_KEYS, {"category": "refund", "order": "A1"}, stage).answer is not None


def test_after_an_answerable_stage_a_missing_part_is_refused():
    with pytest.raises(WorkflowError, match=r"request 'q0', invocation 1 \('classify'\): answer: the state has no key 'order'"):
        with_shown(ROW, TWO_KEYS, {"category": "refund"}, Stage("classify"))
