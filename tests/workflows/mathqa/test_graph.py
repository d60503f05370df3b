"""The loop over scripted models: what each turn sees, and when the workflow's own check ends it."""

import pytest

from vinelm.workflows.mathqa import graph
from vinelm.workflows.mathqa.equality import math_signal
from vinelm.workflows.mathqa.graph import MathState, check, finished, solve


class Model:
    """Says its texts in turn, and keeps the prompts."""

    def __init__(self, *texts):
        self.texts, self.prompts = list(texts), []

    def invoke(self, messages):
        self.prompts.append(messages[-1].content)
        return type("Message", (), {"text": self.texts.pop(0)})


def turns(model, state: MathState, n):
    for _ in range(n):
        state = {**state, **solve(state, model)}
        state = {**state, **check(state)}
    return state


@pytest.mark.parametrize(
    ("text", "found", "ends"),
    [
        ("Check: 2 * 3\nAnswer: 6", "holds", True),
        ("Check: 2 * 3\nAnswer: 7", "differs", False),
        ("Check: 1 / 3\nAnswer: 0.3333333", "holds", True),
        ("Check: 1 / 3\nAnswer: 0.33", "differs", False),
        ("Answer: 6", "no check", False),
        ("Check: x + 1\nAnswer: 6", "no check", False),
        ("Check: 9**9**9**9\nAnswer: 6", "no check", False),
        ("Check: 0\nAnswer: 0", "holds", True),
        ("I cannot tell you this one, sorry.", "no answer", False),
    ],
)
def test_what_the_check_finds(text, found, ends):
    state = turns(Model(text), {"question": "?"}, 1)
    assert math_signal(state) == found
    assert finished(state) is ends


def test_any_choice_passes():
    assert math_signal(turns(Model("Answer: B"), {"question": "?", "choices": "AB"}, 1)) == "choice"
    assert finished(turns(Model("B"), {"question": "?", "choices": "AB"}, 1))
    assert math_signal(turns(Model("Answer: D"), {"question": "?", "choices": "AB"}, 1)) == "no answer"


def test_a_later_turn_sees_the_earlier_solution_and_what_the_check_found():
    model = Model("First try.\nCheck: 2 * 3\nAnswer: 7", "Check: 2 * 3\nAnswer: 6")
    state = turns(model, {"question": "How many?"}, 2)
    assert state["answer"] == "6"
    assert finished(state)
    first, second = model.prompts
    assert first == "Problem:\nHow many?"
    assert "How many?" in second
    assert "First try." in second
    assert "the calculation gives 6, which is not the answer" in second


def test_hostile_text_stays_text():
    text = "{question} {0} %s \x00 Check: {report}\nAnswer: {value}" + "y" * 9_000
    state = turns(Model(text, "Answer: 1"), {"question": "{text}"}, 2)
    assert state["answer"] == "1"


def test_the_graph_repeats_until_its_check_passes():
    from langgraph.graph import StateGraph

    asked = []

    class Vine:
        def stage(self, name, fn):
            return lambda state: fn(state, Model(self.texts.pop(0)))

        def route(self, is_done, *, again, end):
            return lambda state: end if is_done(state) else again

        def finish(self, state):
            asked.append(state["check"])
            return {}

    vine = Vine()
    vine.texts = ["Answer: 5", "Check: 2\nAnswer: 3", "Check: 2\nAnswer: 2"]
    built = graph.build(vine)
    assert isinstance(built, StateGraph)
    assert built.compile().invoke({"question": "?"})["answer"] == "2"
    assert asked == ["holds"]
