"""What requests show, as a judge with known errors counts it, is corrected to what is right."""

from dataclasses import replace

import numpy as np
import pytest
from kit.worlds.outcomes import random_outcome_trie

from vinelm.estimator.judged.agreement import JudgeAgreement, Rate
from vinelm.estimator.judged.correction import corrected_trie

JUDGE = JudgeAgreement(400, 400, 0.9, Rate(0.9, 200), Rate(0.8, 200))


@pytest.mark.parametrize("seed", range(3))
def test_a_correction_undoes_the_errors_in_every_outcome(seed):
    signals, _, paths = random_outcome_trie(np.random.default_rng(seed), depth=2, fits=3)
    true = signals.outcomes
    seen = 0.9 * true.right + 0.2 * (true.chance - true.right)
    reach = signals.reach[true.node][:, None]
    spread = 0.9 * true.spread + 0.2 * (true.chance[:, None] * reach - true.spread)
    judged = signals.with_right(replace(true, right=seen, spread=spread.astype(np.float32)), seen)
    found = corrected_trie(replace(paths, signals=judged), JUDGE, np.zeros(len(paths.trie))).signals
    assert found.outcomes.right == pytest.approx(true.right, abs=1e-9)
    assert found.success == pytest.approx(signals.success, abs=1e-9)
    assert found.arm_success == pytest.approx(signals.arm_success, abs=1e-9)
    assert found.stop_success == pytest.approx(signals.stop_success, abs=1e-9)
    assert np.clip(spread, 0, 1).shape == found.outcomes.spread.shape
    assert found.outcomes.spread.mean(axis=1) == pytest.approx(np.clip(true.spread, 0, 1).mean(axis=1), abs=0.05)
    assert (found.outcomes.right_last <= found.outcomes.right + 1e-12).all()
