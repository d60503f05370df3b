"""A cap per request holds for the request as a whole, whichever processes it runs in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.apps import capped
from kit.apps.savers import dump

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "expected_usd",
    [pytest.param(0.0001, marks=pytest.mark.long), 0.6, pytest.param(0.9, marks=pytest.mark.long)],
    ids=["cheaper", "as expected", "dearer"],
)
def test_a_request_that_another_process_resumes_keeps_its_cap(expected_usd):
    """$0.6 of $1 are spent here, whatever the trie expected; there only one of the three calls of $0.3 may be made."""
    graph, vine, saver = capped.application(0.0)
    here, _, _ = capped.spend(graph, vine, {"question": "?"}, interrupt_before=["fix"], durability="exit")
    assert here == pytest.approx(0.6)
    (entry,) = graph.get_state(capped.THREAD).values[PATH_KEY]["path"]
    assert entry["usd"] == pytest.approx(0.6)
    child = subprocess.run(
        [sys.executable, "-W", "error", "-m", capped.__name__],
        input=json.dumps({"saved": dump(saver, capped.THREAD), "expected_usd": expected_usd}),
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr
    there, in_all, was_refused = json.loads(child.stdout)
    assert there == pytest.approx(0.3)
    assert was_refused
    assert in_all == pytest.approx(here + there)


def test_a_checkpoint_without_dollars_counts_at_the_expected_price():
    graph, vine, _ = capped.application(0.6)
    graph.update_state(
        capped.THREAD,
        {"question": "?", PATH_KEY: [{"k": 0, "stage": "solve", "model": next(iter(vine.catalog))}]},
        as_node="solve",
    )
    spent, in_all, was_refused = capped.spend(graph, vine, None)
    assert (spent, in_all, was_refused) == (pytest.approx(0.3), pytest.approx(0.9), True)
