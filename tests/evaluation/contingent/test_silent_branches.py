"""Branches behind the answer whose stages write none: a log, a mail. No plan has a model for them."""

import numpy as np
import pytest
from kit.tries import routed_trie

from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.objective import Objective
from vinelm.plans.static_plans import NEVER, StaticPlans, runs_one_model
from vinelm.template import END, Branch, Stage, Template

MODELS = ("m0", "m1")
TOLD = Branch({name: (Stage(name, MODELS, answerable=False),) for name in ("log", "mail")} | {"none": END})
BEFORE = Branch({"file": (Stage("file", MODELS, answerable=False), END), "go": ()})
TEMPLATES = {
    "behind": Template((Stage("write", MODELS), TOLD)),
    "before another stage": Template((Stage("read", MODELS), BEFORE, Stage("write", MODELS))),
    "after several": Template((Stage("read", MODELS), Stage("write", MODELS), TOLD)),
}


@pytest.mark.parametrize("shape", TEMPLATES)
def test_plans_are_compared(shape):
    """It ended with "IndexError: index 1 is out of bounds for axis 0 with size 1"."""
    plans = GraphPlans(routed_trie(template=TEMPLATES[shape]))
    never = {"log", "mail", "file"}
    for row in plans.compare(Objective(maximize="accuracy")):
        assert row.decision.accuracy > 0.0
    alone = dict(plans.single_models())
    assert set(alone) == set(MODELS)
    for name, plan in alone.items():
        assert set(plan.models.values()) == {name}
        assert not never & set(plan.models)
        assert plans.having(plans.settings(plan)).models == plan.models


@pytest.mark.parametrize("shape", TEMPLATES)
def test_assignments_say_which_stages_never_run(shape):
    annotated = routed_trie(template=TEMPLATES[shape])
    models = StaticPlans.of(annotated).models
    assert models.shape[1] == len(annotated.trie.stages)
    silent = [stage.name in ("log", "mail", "file") for stage in TEMPLATES[shape].stages]
    np.testing.assert_array_equal((models == NEVER).all(axis=0), silent)
    assert runs_one_model(models).sum() == len(MODELS)
