"""A turn too many of a loop is said to be one: no arm is missing, and none is to be added."""

import pytest

from vinelm.policies import DefaultPolicy
from vinelm.profiler.execution.outcome import arm_after
from vinelm.template import END, Branch, Loop, Stage, Template
from vinelm.template.bounds import exceeded_loop

TEAM = Loop((Stage("lead"), Branch({"law": (Stage("law"),), "tax": (Stage("tax"),), "done": END})), times=2)
DRAFT = Loop((Stage("draft"),), times=2)
TEMPLATE = Template((Stage("plan"), DRAFT, TEAM, Stage("write")))
TURN = ("lead", "law")


@pytest.mark.parametrize(
    ("stages", "stage", "loop"),
    [
        (("plan", "draft", "draft"), "draft", DRAFT),
        (("plan", "draft", "draft", *TURN, "lead", "tax"), "lead", TEAM),
        (("plan", "draft", "draft", *TURN), "write", None),
        (("plan", "draft", "draft", "lead"), "write", None),
        (("plan",), "tax", None),
    ],
)
def test_the_loop_is_found(stages, stage, loop):
    assert exceeded_loop(TEMPLATE, stages, stage) is loop


def test_it_may_have_been_exceeded_before():
    template = Template((Loop((Stage("model"),), times=3),))
    assert exceeded_loop(template, ("model",) * 6, "model") is template.steps[0]


def test_a_loop_inside_an_arm():
    fix = Loop((Stage("fix"),), times=1)
    template = Template((Stage("router"), Branch({"repair": (fix,), "none": ()}), Stage("write")))
    assert exceeded_loop(template, ("router", "fix"), "fix") is fix


def test_a_profile_says_which_bound():
    """It said: "add an arm for it, with Branch"."""
    arm, problem = arm_after(TEMPLATE, ("plan", "draft", "draft", *TURN, "lead", "tax"), ["lead"])
    assert arm is None
    assert "'lead' is a turn more than its loop's times=2: raise it, or bound the loop with vine.route(times=)" in problem
    _, problem = arm_after(TEMPLATE, ("plan", "draft", "draft", "lead"), ["write"])
    assert "add an arm for it, with Branch" in problem


def test_a_served_request_says_which_bound():
    """It said: "the template has no 'draft' ..., so add it there"."""
    policy = DefaultPolicy(lambda stage: "m0", template=TEMPLATE)
    policy.note_unexpected("draft", ("m0",) * 3, "m0", ("plan", "draft", "draft"))
    policy.note_unexpected("tax", ("m0",), "m0", ("plan",))
    first, second = (step["note"] for step in policy.trace())
    assert "'draft' is a turn more than its loop's times=2" in first
    assert "missing" not in first
    assert "add it there" in second
