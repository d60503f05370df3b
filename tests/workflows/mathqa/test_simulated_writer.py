import random

import pytest

from vinelm.backends import create_backends, simulated_catalog
from vinelm.clock import VirtualClock
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import Request
from vinelm.workflows.mathqa import mathqa
from vinelm.workflows.mathqa.equality import is_right
from vinelm.workflows.mathqa.graph import check, finished
from vinelm.workflows.mathqa.prompts import read_solution
from vinelm.workflows.mathqa.simulated_writer import SolutionWriter

WRITER = SolutionWriter()
PROBLEMS = mathqa().requests[:44]


def state_of(request, text):
    answer, calculation = read_solution(text, request.data.get("choices", ""))
    state = {"answer": answer, "calculation": calculation, "choices": request.data.get("choices", "")}
    return {**state, **check(state)}


@pytest.mark.parametrize("request_", PROBLEMS, ids=lambda r: r.id)
def test_right_is_right_and_wrong_is_wrong(request_):
    for seed in range(4):
        state = state_of(request_, WRITER.right(request_, random.Random(seed)))
        assert is_right(request_, state)
        assert finished(state)
        for kind in WRITER.kinds:
            state = state_of(request_, WRITER.wrong(request_, kind, random.Random(seed)))
            assert not is_right(request_, state), kind
            assert finished(state) is (kind not in WRITER.visible_kinds), kind


def test_the_usual_mistake_is_that_of_all():
    request = PROBLEMS[0]
    assert len({WRITER.wrong(request, "misread", random.Random(seed)) for seed in range(9)}) == 1
    assert len({WRITER.wrong(request, "changed_number", random.Random(seed)) for seed in range(9)}) > 2


@pytest.mark.parametrize(
    "data",
    [
        {"question": "q", "answer": "18"},
        {"question": "q", "answer": "B", "choices": "ABCD"},
        {"question": "q", "answer": r"\sqrt2"},
    ],
)
def test_rows_of_other_datasets(data):
    request = Request("1", data)
    assert is_right(request, state_of(request, WRITER.right(request, random.Random(1))))
    for kind in WRITER.kinds:
        assert not is_right(request, state_of(request, WRITER.wrong(request, kind, random.Random(1))))
    assert all(0 <= share <= 1 for share in WRITER.skills(request).values())


def test_a_model_mostly_repeats_its_mistake_and_another_one_corrects_it():
    workflow, catalog = mathqa(), simulated_catalog("paper-math")
    backend = create_backends(catalog, workflow=workflow, seed=3)["simulated"]
    names = list(catalog)

    def right(request, *prefix):
        call = CallContext(stage="solve", prefix=prefix, clock=VirtualClock(), on_usage=lambda usage: None, request=request)
        return is_right(request, state_of(request, backend.answer(catalog[prefix[-1]], call, 100)[0]))

    first = {name: [right(r, name) for r in workflow.requests[:300]] for name in names}
    accuracy = {name: sum(found) / 300 for name, found in first.items()}
    assert min(accuracy.values()) > 0.3
    assert max(accuracy.values()) > min(accuracy.values()) + 0.1
    weak, strong = min(accuracy, key=accuracy.get), max(accuracy, key=accuracy.get)
    failed = [r for r, ok in zip(workflow.requests[:300], first[weak], strict=True) if not ok]
    again = sum(right(r, weak, weak) for r in failed) / len(failed)
    other = sum(right(r, weak, strong) for r in failed) / len(failed)
    assert 0.02 < again < 0.35
    assert other > again + 0.15
