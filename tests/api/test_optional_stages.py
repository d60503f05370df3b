"""Optional stages and a judge, from the profile to served requests: skip costs nothing, changes nothing, and calls nobody."""

from dataclasses import replace

import pytest
from kit.catalogs import make_catalog
from kit.toys.verified import PROMPT, State, VerifiedBackend, build, catalog, verdict_of, verified

from vinelm import Objective, VineLM
from vinelm.adapters.langgraph.nodes.verifier import read_verdict
from vinelm.api.profiling import bind_workflow
from vinelm.controller import Planner
from vinelm.errors import ConfigError, TemplateError, WorkflowError
from vinelm.estimator import estimate_signals, make_estimator
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.plans.promise import single_model_paths
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request
from vinelm.template import SKIP, Loop, Stage, Template
from vinelm.traces import ObservationStore, check_store
from vinelm.vinefile import load_trie, save_trie

WORTH = Objective(maximize="accuracy", max_cost_usd=0.003, mix=False)
"""A judge at $0.0002 tells which answers of $0.001 are to be given again for $0.004."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The workflow, its rows by request and prefix, the calls of the profile, and the trie as it is read from a file."""
    folder, backends = tmp_path_factory.mktemp("verified"), {"test": VerifiedBackend()}
    steps = (Loop((Stage("solve"), Stage("verify", ("m0",), optional=True, verdict="verdict")), times=2),)
    workflow = bind_workflow(verified(40, template=Template(steps)), catalog(), backends)
    with ObservationStore.open_or_create(folder / "s.db", store_identity(workflow, catalog(), backends)) as store:
        profile(workflow, catalog(), backends, store, ProfileSettings(sampler="exhaustive"))
        rows = store.observations()
    assert check_store(folder / "s.db").findings == ()
    template = workflow.template.bind(tuple(catalog()))
    paths = make_estimator("latent").fit(rows, template, catalog()).annotated_
    save_trie(folder / "v.vine", replace(paths, signals=estimate_signals(paths, rows, fits=2)))
    by_cell = {(row.request_id, row.prefix): row for row in rows}
    return workflow, by_cell, backends["test"].calls, load_trie(folder / "v.vine")


def test_a_skipped_stage_is_a_free_row_that_leaves_the_answer(whole):
    _, rows, calls, _ = whole
    skipped = [cell for cell in rows if cell[1][-1] == SKIP]
    assert skipped
    assert not any(prefix[-1] == SKIP for _, prefix in calls)
    for request, prefix in skipped:
        row, before = rows[request, prefix], rows[request, prefix[:-1]]
        assert (row.cost_usd, row.calls, row.failure, row.signal) == (0.0, 0, None, None)
        assert (row.success, row.answer, row.answer_class) == (before.success, before.answer, before.answer_class)


def test_a_verdict_is_what_the_judge_shows(whole):
    _, rows, _, _ = whole
    for row in rows.values():
        if row.stage == "verify" and row.model != SKIP:
            assert row.signal == verdict_of(row.request_id, row.answer.strip('"'))


def test_no_answer_is_other_after_a_judge_or_a_skip(whole):
    trie = whole[3].trie
    for node in range(1, len(trie)):
        if trie.stages[trie.stage[node]] == "verify":
            assert whole[3].success[node] == pytest.approx(whole[3].success[trie.parent[node]], abs=1e-9)
        if trie.models[trie.model[node]] == SKIP:
            assert whole[3].cost_usd[node] == whole[3].latency_s[node] == 0.0


def test_the_judge_is_asked_where_that_is_worth_its_price_and_nowhere_else(whole):
    signals, backend = whole[3].signals, VerifiedBackend()
    worth, rich = (Planner(signals).plan(Objective(maximize="accuracy", max_cost_usd=usd)) for usd in (0.003, 0.006))
    assert "[failed, no, answer 1]: m1" in worth.explain()
    assert "verify [failed, answer 1]: m0" in worth.explain()
    assert "no, answer" not in rich.explain()  # both models at once are better
    vine = VineLM(catalog(), {"test": backend}, trie=whole[3], signals=whole[0].signals, allow_unproven=True, on_error="raise")
    app = build(vine).compile()
    for name in (f"q{i}" for i in range(200, 212)):
        backend.calls.clear()
        request = Request(name, {"question": name})
        out = app.invoke({"question": name}, context=vine.context(WORTH, request=request))
        asked = [prefix for _, prefix in backend.calls]
        assert asked[:2] == [("m0",), ("m0", "m0")]
        if len(asked) == 2:
            assert (out["verdict"], out["checked"]) == ("yes", 1)
        else:  # the second answer is not judged, and the tool behind the judge runs all the same
            assert asked[2:] == [("m0", "m0", "m1")]
            assert (out["verdict"], out["checked"]) == ("no", 2)


def test_the_best_single_model_need_not_pay_for_the_judge(whole):
    trie, alone = whole[3].trie, single_model_paths(whole[3].trie)
    assert alone[trie.sole_node(("m1", SKIP))]
    assert not alone[trie.sole_node(("m0", SKIP, "m1", SKIP))]
    assert set(dict(plans_over(replace(whole[3], signals=None)).single_models())) == {"m0"}  # the judge is m0, if any


def test_without_a_plan_the_judge_is_left_out():
    backend = VerifiedBackend()
    vine = VineLM(catalog(), {"test": backend}, on_error="raise")
    out = build(vine).compile().invoke({"question": "?"}, context=vine.context(request=Request("q0", {"question": "?"})))
    assert "verdict" not in out
    assert {len(prefix) for _, prefix in backend.calls} <= {1, 3}


def test_its_name_is_reserved_and_says_so_in_one_line():
    with pytest.raises(ConfigError, match="'skip', the word for leaving a stage out"):
        make_catalog(1, name=SKIP)
    with pytest.raises(TemplateError, match="optional=True"):
        Stage("a", ("m0", SKIP))
    bound = Template((Stage("a"), Stage("b", optional=True, verdict="v"))).bind(("m0",))
    assert [stage.models for stage in bound.stages] == [("m0",), ("m0", SKIP)]
    assert Template.from_dict(bound.to_dict()) == bound


def test_what_cannot_be_optional_is_refused():
    with pytest.raises(WorkflowError, match="declare it, verdict: str"):
        VineLM(catalog(), {"test": VerifiedBackend()}).verifier("verify", prompt=PROMPT, state=dict)
    template = Template((Stage("solve"), Stage("verify")))
    with pytest.raises(WorkflowError, match=r"say Stage\('verify', optional=True, verdict='verdict'\)"):
        bind_workflow(verified(2, template=template), catalog(), {"test": VerifiedBackend()})
    assert "verdict" in State.__annotations__


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ('{"right": true}', "yes"), ('```json\n{"right": false}\n```', "no"), ("Yes, it is.", "yes"), ("Verdict: no", "no"),
        ("2 + 2 is 4.\nRight: yes", "yes"), ("It is not correct", "unclear"), ("yes\nno", "unclear"), ("", "unclear"),
        ('{"right": "maybe"}', "unclear"), ('{"right": true} {"right": false}', "unclear"),
    ],
)  # fmt: skip
def test_a_reply_is_read_or_unclear(reply, verdict):
    assert read_verdict(reply) == verdict
