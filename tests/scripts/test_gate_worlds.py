"""The gate's worlds: what is kept of one, how a verdict is read off it, and that a kind of world changes what it says."""

import gate_worlds as script
import pytest

from vinelm.trie.verdict import ComparedPlan, Verdict


def made(gain_low, truth):
    """A kept world with one plan that saves half."""
    plan = ComparedPlan(
        policy="fixed", words="small", cost_usd=0.5, gain=0.0, gain_low=gain_low, gain_high=0.1, best_low=gain_low,
        best_high=0.1, saved_usd=0.5, saved_low=0.4, saved_high=0.6, is_same=False, is_identified=True,
    )  # fmt: skip
    verdict = Verdict(plans=(plan,), accuracy=0.9, cost_usd=1.0, requests=100, rows=200)
    return {
        "kind": "plain", "shape": "loop", "seed": 0, "requests": 100, "rows": 200, "seconds": 1.0, "verdict": verdict.held(),
        "truths": [truth], "possible_gain": 0.0, "possible_saving": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gain_low", "truth", "max_loss", "advice", "is_worse"),
    [
        (-0.02, (-0.01, 0.5), 0.03, "switch", False),
        (-0.02, (-0.04, 0.5), 0.03, "switch", True),
        (-0.04, (-0.05, 0.5), 0.01, "", False),
    ],
)
def test_a_kept_world_is_judged_at_any_loss(gain_low, truth, max_loss, advice, is_worse):
    found = script.Found.of(made(gain_low, truth), max_loss)
    assert (found.advice == "switch", found.is_worse) == (advice == "switch", is_worse)
    assert found.gain == (truth[0] if advice == "switch" else 0.0)


def test_a_share_of_the_requests_has_its_share_of_the_loss():
    found = script.Found.of(made(-0.02, (-0.04, 0.5)), 0.01)
    assert (found.advice, found.served, found.gain, found.saved) == ("switch", 0.5, -0.02, 0.25)


def test_the_shares_are_of_the_switches():
    found = [script.Found.of(made(-0.02, truth), 0.03) for truth in ((0.0, 0.5), (-0.04, 0.5))]
    rows = script.summary(found)
    assert (rows["switches"], rows["worse"], rows["missed"], rows["saving"]) == (2, 1, 1, 2)


def answers(kind, n=300):
    world = script.World("linear", 1, kind)
    stage = world.template.first_stages[0].name
    cells = [(f"{'fresh' if kind == 'drift' else 'q'}{i}", ("tiny",)) for i in range(n)]
    answer = world.template.stages[1].name
    both = [((name, (*prefix, "tiny")), world.row_of((name, prefix), stage)) for name, prefix in cells]
    return world, [(cell, world.row_of(cell, answer)[0]) for cell, _ in both], answer


def test_every_kind_of_world_is_another_one():
    rows = {kind: [row for _, row in answers(kind)[1]] for kind in (*script.KINDS, *script.APART)}
    right = {kind: sum(float(row.success or 0.0) for row in found) / len(found) for kind, found in rows.items()}
    assert right["tail"] < right["plain"]  # some requests are right with the dearest model only
    assert right["drift"] < right["plain"]
    assert max(row.cost_usd for row in rows["tail"]) > 2 * max(row.cost_usd for row in rows["plain"])
    assert any(0.0 < row.success < 1.0 for row in rows["graded"])
    world, judged, answer = answers("judge")
    said = [world.row(cell, world.unit(cell, [answer]), answer).success for cell, _ in judged]
    favoured = sum(bool(said_right) and not row.success for said_right, (_, row) in zip(said, judged, strict=True))
    assert favoured > 0.2 * sum(not row.success for _, row in judged)
