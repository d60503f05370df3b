from dataclasses import replace

import numpy as np
import pytest

from vinelm.catalog import Catalog
from vinelm.errors import InputError
from vinelm.estimator import ObservationTable
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
CATALOG = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in "ab"]})
TEMPLATE = Template((Stage("generate"), Loop((Stage("repair"),), times=1)), "oracle").bind(tuple(CATALOG))
TRIE = Trie.from_template(TEMPLATE)


def row(request: str, path: str, success: bool | None = False, stopped: bool | None = False) -> Observation:
    return Observation(
        request_id=request, prefix=tuple(path), stage=("generate", "repair")[len(path) - 1], success=success, stopped=stopped,
        cost_usd=0.5, latency_s=2.0, tool_cost_usd=0.25, tool_latency_s=1.0,
    )  # fmt: skip


def encode(*rows: Observation, template: Template = TEMPLATE) -> ObservationTable:
    return ObservationTable.from_observations(rows, template, TRIE)


def test_cells_are_sorted_and_hold_the_tools_share() -> None:
    cells = encode(row("q2", "ab", True), row("q2", "a"), row("q1", "a", True))
    assert cells.request_ids == ("q1", "q2")
    assert [TRIE.prefix(int(u)) for u in cells.node] == [("a",), ("a",), ("a", "b")]
    assert list(cells.request) == [0, 1, 1]
    assert list(cells.right) == [True, False, True]
    np.testing.assert_array_equal(cells.cost_usd, 0.75)
    np.testing.assert_array_equal(cells.latency_s, 3.0)
    assert cells.count_by_depth == [2, 1]


def test_a_repeated_row_counts_once_and_a_contradiction_is_refused() -> None:
    assert len(encode(row("q", "a"), row("q", "a"))) == 1
    with pytest.raises(InputError, match=r"'q', prefix a: two different rows"):
        encode(row("q", "a"), row("q", "a", True))
    with pytest.raises(InputError, match="two different rows"):
        encode(row("q", "a"), replace(row("q", "a"), cost_usd=0.6))


def test_rows_beyond_the_requests_own_stop_are_left_out() -> None:
    rows = (row("q", "a", True), row("q", "ab"), row("p", "a", False, True), row("p", "ab"))
    oracle, workflow = encode(*rows), encode(*rows, template=TEMPLATE.with_stop("workflow"))
    assert (len(oracle), oracle.n_beyond_stop) == (3, 1)
    assert oracle.request_ids[oracle.request[-1]] == "p"
    assert workflow.request_ids[workflow.request[-1]] == "q"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (replace(row("q", "a"), prefix=("z",)), r"'q', prefix z: the template has no such prefix"),
        (replace(row("q", "ab"), prefix=("a", "b", "a"), stage="repair"), "no such prefix"),
        (replace(row("q", "a"), stage="plan"), "stage 'plan', where the template has 'generate'"),
        (row("q", "a", None), "success is unknown"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_one_line(bad: Observation, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        encode(row("p", "a"), bad)
    assert "\n" not in str(caught.value)


def test_the_workflow_stop_needs_the_workflows_verdict_but_not_the_label() -> None:
    template = TEMPLATE.with_stop("workflow")
    with pytest.raises(InputError, match="stopped is unknown"):
        encode(row("q", "a", True, None), template=template)
    assert not encode(row("q", "a", None, True), template=template).labelled[0]
