"""A stage that asks of which kind a request is: profiled, estimated, planned where its price is worth it, and served."""

import pytest
from kit.toys.classified import USD, ClassifiedBackend, State, build, catalog, classified, is_right, kind_of

from vinelm import Objective, VineLM, evaluate, verify
from vinelm.adapters.langgraph.nodes.verifier import read_label
from vinelm.api.profiling import bind_workflow
from vinelm.controller import Planner
from vinelm.errors import WorkflowError
from vinelm.estimator import make_estimator
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request
from vinelm.template import SKIP
from vinelm.traces import ObservationStore, check_store
from vinelm.vinefile import load_trie, save_trie

CHEAP, DEAR = 0.0001, 0.004
LITTLE, MUCH = (Objective(maximize="accuracy", max_cost_usd=usd, mix=False) for usd in (0.0015, 0.0045))
"""What pays a cheap label and its specialist, and what pays either a dear label or the model that is fairly good at both."""


@pytest.fixture(scope="module")
def tries(tmp_path_factory):
    """By the price of a label: the rows, the trie as it is read from a file, and the store."""
    return {usd: profiled(tmp_path_factory.mktemp("classified"), usd) for usd in (CHEAP, DEAR)}


def profiled(folder, label_usd):
    backends = {"test": ClassifiedBackend(label_usd=label_usd)}
    workflow = bind_workflow(classified(32), catalog(), backends)
    with ObservationStore.open_or_create(folder / "s.db", store_identity(workflow, catalog(), backends)) as store:
        profile(workflow, catalog(), backends, store, ProfileSettings(coverage=0.5, seed=1))
        rows = store.observations()
    assert check_store(folder / "s.db").findings == ()
    template = workflow.template.bind(tuple(catalog()))
    save_trie(folder / "v.vine", make_estimator("latent").fit(rows, template, catalog()).annotated_)
    return rows, load_trie(folder / "v.vine"), folder / "s.db"


def serving(trie, backend, request_id, objective):
    """What a request finds in the end, and its session."""
    vine = VineLM(catalog(), {"test": backend}, trie=trie, allow_unproven=True, on_error="raise")
    request = Request(request_id, {"question": request_id})
    session = vine.session(objective, request=request)
    out = build(vine).compile().invoke({"question": request_id}, context=vine.context(policy=session, request=request))
    return out, session


def test_the_label_decides_the_arm_and_a_skipped_one_is_other(tries):
    rows, _, _ = tries[CHEAP]
    arms = {(row.request_id, row.prefix): row.arm for row in rows if row.stage == "sort"}
    skipped = [row for row in rows if row.stage == "sort" and row.model == SKIP]
    assert skipped
    assert {row.cost_usd for row in skipped} == {0.0}
    assert {arms[row.request_id, row.prefix] for row in skipped} == {"solve other"}
    asked = [row for row in rows if row.stage == "sort" and row.model != SKIP]
    agree = [arms[row.request_id, row.prefix] == f"solve {kind_of(row.request_id)}" for row in asked]
    assert sum(agree) > 0.9 * len(agree)
    assert {row.cost_usd for row in asked} == {CHEAP}


def test_a_label_is_bought_where_it_is_worth_its_price_and_nowhere_else(tries):
    cheap, dear = Planner(tries[CHEAP][1]).plan(LITTLE), Planner(tries[DEAR][1]).plan(MUCH)
    assert cheap.next_model != SKIP
    assert "solve code: m0" in cheap.explain()
    assert "solve prose: m1" in cheap.explain()
    assert dear.next_model == SKIP
    assert "solve other: m2" in dear.explain()
    assert cheap.accuracy > dear.accuracy + 0.05


def test_the_best_single_model_buys_no_label(tries):
    plans = plans_over(tries[DEAR][1])
    assert plans.fixed(MUCH, "single").models == {"sort": SKIP} | dict.fromkeys(
        ("solve code", "solve prose", "solve other"), "m2"
    )
    assert set(dict(plans.single_models())) == {"m0", "m1", "m2"}


def test_served_requests_are_answered_by_the_model_of_their_label(tries):
    right = {"plan": 0, "m2": 0}
    for name in (f"q{i}" for i in range(400, 440)):
        backend = ClassifiedBackend(label_usd=CHEAP)
        out, session = serving(tries[CHEAP][1], backend, name, LITTLE)
        assert [step["stage"] for step in session.trace() if "stage" in step][:2] == ["sort", f"solve {out['kind']}"]
        assert [prefix[-1] for _, prefix in backend.calls][1:] == [{"code": "m0", "prose": "m1"}[out["kind"]]]
        right["plan"] += out["answer"] == "right"
        right["m2"] += is_right(name, "m2")
    assert right["plan"] >= right["m2"]


def test_a_plan_that_skips_calls_nobody_for_a_label(tries):
    backend = ClassifiedBackend(label_usd=DEAR)
    out, session = serving(tries[DEAR][1], backend, "q500", MUCH)
    assert "kind" not in out
    assert session.spent_usd == USD["m2"]
    assert backend.calls == [("q500", (SKIP, "m2"))]


@pytest.mark.parametrize(("usd", "skips"), [(CHEAP, False), (DEAR, True)])
def test_rows_and_held_out_requests_judge_the_plan(tries, monkeypatch, usd, skips):
    _, trie, store = tries[usd]
    objective = MUCH if skips else LITTLE
    plans = {policy.name: policy for policy in evaluate(store, objective=objective).policies}
    assert plans["paths"].accuracy.is_identified
    monkeypatch.setattr(
        "vinelm.verdicts.verification.create_backends", lambda *_, **__: {"test": ClassifiedBackend(label_usd=usd)}
    )
    found = verify(store, trie, objective, workflow=classified(120), models=catalog(), requests=40, budget_usd=1.0)
    assert len(found.rows) == 40
    assert {row.prefix[0] == SKIP for row in found.rows} == {skips}
    assert found.spent_usd / 40 == pytest.approx(USD["m2"] if skips else usd + USD["m0"])


def test_a_reply_that_is_no_label_is_other(tries):
    out, _ = serving(tries[CHEAP][1], ClassifiedBackend(reply='{"kind": "poetry"}'), "q501", LITTLE)
    assert out["kind"] == "other"


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ('{"kind": "code"}', "code"), ('```json\n{"kind": "PROSE"}\n```', "prose"), ("Code.", "code"),
        ("Kind: `prose`", "prose"),
        ("It asks for a loop.\nThe kind: two words", "two words"), ("other", "other"), ('{"kind": "poetry"}', "other"),
        ("code\nprose", "other"), ("not code", "other"), ("", "other"), ('{"kind": 3}', "other"),
        ('{"kind": "code"} {"kind": "prose"}', "other"),
    ],
)  # fmt: skip
def test_a_reply_is_read_or_other(reply, label):
    assert read_label(reply, ("code", "prose", "two words")) == label


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([], "0 labels: give 1 to 16"), ([f"k{i}" for i in range(17)], "17 labels"), ("code", "a list of texts"),
        ([1, 2], "a list of texts"), (["a", "A"], "the same word"), (["a", "Other"], "leave it out"),
        ([" "], "1 to 64 characters"), (["a\nb"], "one line"), (["a" * 65], "1 to 64 characters"),
    ],
)  # fmt: skip
def test_labels_that_cannot_be_told_apart_are_refused_in_one_line(labels, words):
    vine = VineLM(catalog(), {"test": ClassifiedBackend()})
    with pytest.raises(WorkflowError, match=words) as error:
        vine.classify("sort", labels=labels, prompt="{question}", state=State)
    assert "\n" not in str(error.value)


def test_a_key_that_the_state_lacks_and_a_prompt_that_cannot_be_filled_in_are_refused():
    vine = VineLM(catalog(), {"test": ClassifiedBackend()})
    with pytest.raises(WorkflowError, match="no key 'sorted': declare it, sorted: str"):
        vine.classify("sort", labels=["a"], prompt="{question}", state=State, key="sorted")
    node = vine.classify("sort", labels=["a"], prompt="{nothing}", state=State)
    with pytest.raises(WorkflowError, match="stage 'sort': its prompt cannot be filled in"):
        node({"question": "?"}, model=object())
