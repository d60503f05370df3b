"""Estimates from a judge's verdicts, corrected to right answers."""

import numpy as np
import pytest
from kit.tries import routed_trie

from vinelm.estimator.judged.agreement import JudgeAgreement, Rate
from vinelm.estimator.judged.correction import corrected_trie

NEVER_ERRS = JudgeAgreement(requests=50, rows=50, agreed=1.0, sensitivity=Rate(1.0, 50), specificity=Rate(1.0, 50))


@pytest.mark.parametrize("n_models", [2, 3])
def test_a_judge_that_never_errs_changes_no_estimate_where_the_trie_branches(n_models):
    """An answer's chance is the sum over what may come next: each arm counts once, however many models it has."""
    verdicts = routed_trie(1, n_models, answers_everywhere=True)
    goes_on = verdicts.trie.answerable & ~verdicts.trie.is_leaf
    assert (verdicts.success > verdicts.stop_success + 1e-3)[goes_on].any()
    found = corrected_trie(verdicts, NEVER_ERRS, np.zeros(len(verdicts.trie)))
    for name in ("success", "stop_success", "arm_success", "accuracy"):
        assert getattr(found, name) == pytest.approx(getattr(verdicts, name)), name
