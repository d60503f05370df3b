from itertools import product

import numpy as np

from vinelm.plans.static_plans import every_assignment, runs_one_model


def test_every_assignment_is_listed_once_in_order_unless_there_are_too_many():
    allowed = [("a", "b"), ("b",), ("a", "b", "c")]
    found = every_assignment(allowed, most=6)
    assert found == sorted(found)
    assert set(found) == set(product(*allowed))
    assert every_assignment(allowed, most=5) is None
    assert every_assignment([], most=1) == [()]


def test_one_model_at_every_stage():
    assert runs_one_model(np.array([[0, 0, 0], [0, 1, 0], [2, 2, 2]])).tolist() == [True, False, True]
