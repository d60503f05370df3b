"""How rows find their nodes where the template branches, and which rows are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vinelm.errors import InputError
from vinelm.estimator import ObservationTable, make_estimator
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie import Trie


def row(request: str, path: str, stage: str, *, arm: str | None = None, **fields: Any) -> Observation:
    given: dict[str, Any] = {"success": None, "stopped": False, "cost_usd": 0.5, "latency_s": 1.0}
    return Observation(request_id=request, prefix=tuple(path), stage=stage, arm=arm, **given | fields)


@pytest.fixture(name="template")
def _template(made: Any) -> Template:
    template: Template = made.branching_template(made.catalog("a", "b"))
    return template


def encode(template: Template, *rows: Observation) -> ObservationTable:
    return ObservationTable.from_observations(rows, template, Trie.from_template(template))


def paths(cells: ObservationTable) -> set[tuple[tuple[str, str], ...]]:
    return {tuple(cells.trie.edges(int(node))) for node in cells.node}


def test_the_stages_of_a_requests_rows_are_its_arms(template: Template) -> None:
    cells = encode(
        template,
        row("q1", "a", "router"), row("q1", "ab", "math"), row("q1", "abb", "write", success=True, stopped=True),
        row("q2", "a", "router", arm="search"), row("q2", "ab", "search"), row("q3", "a", "router", arm="write"),
    )  # fmt: skip
    assert (("router", "a"), ("math", "b"), ("write", "b")) in paths(cells)
    assert (("router", "a"), ("search", "b")) in paths(cells)
    stages = template.stages
    told = {
        (cells.request_ids[request], int(cells.trie.depth[node])): stages[arm].name if arm >= 0 else None
        for request, node, arm in zip(cells.request, cells.node, cells.arm, strict=True)
    }
    assert told == {
        ("q1", 1): "math", ("q1", 2): "write", ("q1", 3): None, ("q2", 1): "search", ("q2", 2): "check", ("q3", 1): "write",
    }  # fmt: skip


def test_a_missing_row_is_replaced_by_what_the_row_before_it_says(template: Template) -> None:
    cells = encode(template, row("q", "a", "router", arm="search"), row("q", "aba", "check"))
    assert (("router", "a"), ("search", "b"), ("check", "a")) in paths(cells)


def test_rows_that_contradict_the_template_or_one_another_are_refused_in_one_line(template: Template) -> None:
    router = row("q", "a", "router")
    for rows, words in (
        ([row("q", "ab", "math"), row("q", "aba", "search")], "no such prefix|where the template has"),
        ([row("q", "aba", "write")], "earlier row of this request is missing"),
        ([replace(router, arm="math"), row("q", "ab", "search")], "says that 'math' came next"),
        ([replace(router, arm="router")], "'router' came next, which the template does not allow"),
        ([router, replace(router, cost_usd=0.1)], "two different rows"),
        ([row("q", "z", "router")], "no such prefix|where the template has"),
        ([row("q", "a", "write")], "no such prefix|where the template has"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            encode(template, *rows)
        assert "\n" not in str(caught.value)


def test_an_unexpected_arm_is_a_failure_that_ends_the_request(made: Any, template: Template) -> None:
    lost = row("q1", "a", "router", stopped=None, failure="unexpected_arm", arm=None)
    cells = encode(template, lost, *[row(f"p{i}", "a", "router", arm="math") for i in range(3)])
    node = cells.trie.node(("a",), ("router",))
    assert cells.stop[cells.request == cells.request_ids.index("q1")].all()
    fitted = make_estimator("cascade").fit_cells(cells, template, made.catalog("a", "b")).annotated_
    assert fitted.stop[node] == pytest.approx(0.25)


def test_an_arm_that_no_row_tells_is_spread_over_the_arms(made: Any, template: Template) -> None:
    told = [row(f"q{i}", "a", "router", arm="math" if i < 30 else "search") for i in range(40)]
    silent = [row(f"s{i}", "a", "router") for i in range(40)]
    fitted = make_estimator("latent").fit(told + silent, template, made.catalog("a", "b")).annotated_
    assert fitted.arm is not None
    by_stage = {stage: fitted.arm[nodes[0]] for stage, nodes in fitted.trie.arms(fitted.trie.node(("a",))).items()}
    assert by_stage["math"] == pytest.approx(0.75, abs=0.04)
    assert sum(by_stage.values()) == pytest.approx(1.0)


def test_the_oracle_stop_needs_right_or_wrong(made: Any) -> None:
    template = made.template(made.catalog("a", "b"), 2, "oracle")
    half = row("q", "a", "generate", success=0.5)
    with pytest.raises(InputError, match=r"score is 0\.5, but the oracle stop needs right or wrong") as caught:
        encode(template, half)
    assert "\n" not in str(caught.value)
    assert encode(template, replace(half, success=1.0)).right.dtype == np.bool_
    assert encode(template.with_stop("workflow"), half).right.tolist() == [0.5]


def test_graded_scores_average_on_a_chain_too(made: Any) -> None:
    template = made.template(made.catalog("a", "b"), 2, "workflow")
    scores = [0.25, 0.5, 1.0, 0.25]
    rows = [row(f"q{i}", "a", "generate", success=score, stopped=True) for i, score in enumerate(scores)]
    for name in ("latent", "cascade"):
        fitted = make_estimator(name).fit(rows, template, made.catalog("a", "b")).annotated_
        assert fitted.accuracy[fitted.trie.node(("a",))] == pytest.approx(0.5, abs=1e-6)
