"""The template of a new project stays within reach: histories are merged where all of them would be too many."""

from types import SimpleNamespace

from vinelm.scaffold.application import AppGraph
from vinelm.scaffold.project import _within_reach
from vinelm.template import Loop, Stage, Template


def application(template):
    return AppGraph(
        target=SimpleNamespace(), stages=(), nodes=(), template=template, reason=None, calls=(), today={}, input_keys=(),
        output_keys=(), waiting={}, read=lambda times: (template, None),
    )  # fmt: skip


def test_a_template_of_too_many_histories_merges_them():
    nested = Template((Loop((Stage("lead"), Loop((Stage("worker"),), times=3, early_exit=True)), times=3),))
    assert _within_reach(application(nested), 1).template is nested
    merged = _within_reach(application(nested), 3).template
    (outer,) = merged.steps
    assert [outer.memory, outer.stages[1].memory] == [1, 1]


def test_a_small_one_keeps_them_apart_and_one_that_merges_already_stays():
    small = Template((Stage("write"), Loop((Stage("fix"),), times=2)))
    assert _within_reach(application(small), 3).template is small
    own = Template((Loop((Stage("ask"),), times=50, order="ignored"),))
    assert _within_reach(application(own), 8).template.steps == own.steps
    assert _within_reach(application(None), 3).template is None
