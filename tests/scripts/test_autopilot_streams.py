"""The study of streams under an autopilot: what it serves, pays and asks on a small table."""

from dataclasses import replace

import numpy as np
import pytest
from autopilot_streams import MAX_LOSS, best_of, plain, quantile, rivals
from proof_parts.plans import plans_of, solved
from proof_parts.streams import Pilot, Source, figures

from vinelm.evaluation import OutcomeTable


@pytest.fixture(scope="module")
def source():
    """Two cheap models and a dear one; where the cheap ones agree, in 19 of 20 requests, they are right."""
    rng = np.random.default_rng(7)
    right = rng.random((400, 3)) < (0.97, 0.97, 1.1)
    kind = np.where(right, 0, [[1, 2, 3]])
    ids = tuple(f"q{at}" for at in range(400))
    table = OutcomeTable(
        request_ids=ids, systems=("weak", "good", "today"), success=right, signal=np.full((400, 3), -1), labels=(),
        passed=np.ones((400, 3), bool), answer_class=kind, cost_usd=np.tile([0.1, 0.2, 1.0], (400, 1)), groups=ids,
    )  # fmt: skip
    return Source(table, kind)


def test_nothing_is_served_before_its_proof_and_all_is_paid(source):
    flight = Pilot(source, requests=3000, labels=60, max_loss=MAX_LOSS, seed=1).fly()
    first = flight.proofs[0][0]
    assert (flight.plan[: first - 1] == -1).all()
    assert (flight.usd[: first - 1, 0] == 1.0).all()  # today's model, for each
    assert flight.usd[:, 1].sum() > 0.0
    assert flight.labels[-1] <= 60
    assert set(np.unique(flight.share)) <= {0.0, 0.05, 0.25, 0.95}
    best, most = best_of(source.plans)
    found = figures(flight, source.plans, best)
    assert most == 0.06
    assert found["proven"]
    assert found["fee"] == pytest.approx(flight.usd[: first + 1, 1].sum())


def test_answers_that_are_not_kept_are_the_same_where_both_are_right(source):
    classes = solved(source.table)
    right = source.table.success
    assert (classes == classes[:, [2]])[:, :2].tolist() == (right & right[:, [2]])[:, :2].tolist()
    plans = plans_of(replace(source.table, answer_class=np.tile(np.arange(3), (400, 1))), classes)
    agree = plans.names.index("good and weak agree")
    assert plans.escalates[:, agree].all()


def test_a_swap_to_the_weakest_changes_only_that_model(source):
    after = source.swapped(0)
    assert after.names == source.plans.names
    assert after.today_usd.tolist() == source.plans.today_usd.tolist()
    assert not np.array_equal(after.same, source.plans.same)


def test_what_is_not_finite_is_null_in_the_file():
    assert plain({"a": [float("nan"), 1.0], "b": float("inf")}) == {"a": [None, 1.0], "b": None}
    assert quantile([3.0, 1.0, float("inf")], 0.5) == 3.0
    assert quantile([], 0.5) is None


def test_the_rivals_serve_what_they_have_seen(source):
    ways = rivals(source.plans, 3)["ways"]
    assert set(ways) == {"profile first, seems to lose nothing", "profile first, proven", "canary by hand"}
    assert all(0.0 <= saved < 1.0 for saved, _ in ways.values())
