"""Kinds of request in a store: declared, written, made anew, learnt and estimated."""

import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from kit.stores import made_store
from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy

from vinelm.api.estimation import estimate
from vinelm.errors import WorkflowError
from vinelm.estimator.drift.monitor import DriftMonitor
from vinelm.estimator.drift.update import updated_trie
from vinelm.profiler import ProfileLimits, ProfileSettings, profile
from vinelm.profiler.sampling.priced_sampler import PricedSampler, kinds_first
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation
from vinelm.signals.kind import kind_of
from vinelm.template import Loop, Stage, Template
from vinelm.template.kinds import learnt_kinds, of_kinds
from vinelm.template.template import learnt_kind
from vinelm.traces import ObservationStore
from vinelm.traces.imports.export_import import export_store, import_export
from vinelm.traces.store.kinds import request_kinds, set_request_kinds, told_apart
from vinelm.traces.store.merge import merge_stores
from vinelm.trie.annotated_trie import AnnotatedTrie


def test_kinds_of_few_requests_and_beyond_the_sixteenth_are_other() -> None:
    labels = [f"k{i:02}" for i in range(20) for _ in range(15 + i)] + ["rare"] * 14
    learnt = learnt_kinds(labels)
    assert learnt == (*(f"k{i:02}" for i in range(4, 20)), "other")
    assert learnt_kind("rare", learnt) == learnt_kind("unseen", learnt) == learnt_kind(None, learnt) == "other"
    assert learnt_kinds(["one"] * 50) == learnt_kinds([]) == ()


def test_a_template_of_kinds_gives_back_the_template_and_its_plain_form() -> None:
    base = Template((Stage("a"), Loop((Stage("b"),), times=2)), exits=("b",))
    template = of_kinds(base, ("x", "other"))
    assert template.base == base
    assert Template.from_dict(template.to_dict()) == template
    assert [stage.name for stage in template.first_stages] == ["a [x]", "a [other]"]
    assert of_kinds(base, ()) is base
    assert "kinds" not in base.to_dict()


def _fail(inputs: object) -> str:
    raise ValueError("secret")


@pytest.mark.parametrize("kind", [_fail, lambda inputs: "", lambda inputs: 1.5, lambda inputs: "a\nb", "missing"])
def test_a_kind_that_is_no_label_is_one_line(kind: object) -> None:
    with pytest.raises(WorkflowError) as caught:
        kind_of(kind, {"question": "q"})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_field_is_looked_for_in_the_inputs_then_in_the_row() -> None:
    assert kind_of("task", {"task": "math"}, {"task": "code"}) == "math"
    assert kind_of("task", {}, {"task": 3}) == "3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path: Path = made_store(tmp_path / "kinds.db", {"m0": 0.6, "m1": 0.8}, {"m0": 0.001, "m1": 0.002}, requests=60)
    return path


def told(path: Path, kind: str | None) -> list[str]:
    """Give every third request the kind; return the ids of all requests."""
    with ObservationStore.open(path) as opened:
        ids = sorted({row.request_id for row in opened.observations()})
        set_request_kinds(opened, {} if kind is None else {name: kind if i % 3 == 0 else "rest" for i, name in enumerate(ids)})
    return ids


def root_shares(annotated: AnnotatedTrie) -> dict[str, float]:
    assert annotated.arm is not None
    trie = annotated.trie
    return {trie.stages[trie.stage[u]]: float(annotated.arm[u]) for u in trie.children(0)}


def test_the_roots_arms_have_the_shares_of_the_kinds(store: Path) -> None:
    before = estimate(store, check=False)
    told(store, "code")
    annotated = estimate(store, check=False)
    assert annotated.template.kinds == ("code", "rest", "other")
    assert root_shares(annotated) == pytest.approx(
        {"answer [code]": 1 / 3, "answer [rest]": 2 / 3, "answer [other]": 0.0}, abs=1e-6
    )
    told(store, None)
    again = estimate(store, check=False)
    assert again.template == before.template
    assert again.success.tobytes() == before.success.tobytes()


def served_rows(annotated: AnnotatedTrie, kinds: Sequence[str]) -> list[Observation]:
    """First answers of the first model as the trie annotates them, each of a request of the kind."""
    found, of_kind = [], Counter[str]()
    for i, kind in enumerate(kinds):
        node = annotated.trie.child(0, "m0", f"answer [{kind}]")
        stops = (of_kind[kind] * 0.618034) % 1.0 < annotated.stop[node]
        of_kind[kind] += 1
        found.append(
            Observation(
                request_id=f"s{i:05}", prefix=("m0",), stage=f"answer [{kind}]", success=None, stopped=bool(stops),
                arm=None if stops else f"retry [{kind}]", cost_usd=float(annotated.cost_usd[node]),
                latency_s=float(annotated.latency_s[node]),
            )
        )  # fmt: skip
    return found


def test_a_changed_mix_alone_is_no_drift_and_changes_shares_only(store: Path) -> None:
    told(store, "code")
    annotated = estimate(store, check=False)
    rows = served_rows(annotated, ["code" if i % 10 else "rest" for i in range(600)])
    monitor = DriftMonitor(annotated)
    for row in rows:
        monitor.add(row)
    assert monitor.report().moved == ()
    updated = updated_trie(annotated, rows, half_life=100.0)
    before, after = root_shares(annotated), root_shares(updated)
    assert before["answer [code]"] == pytest.approx(1 / 3, abs=1e-4)
    assert after["answer [code]"] == pytest.approx(0.9, abs=0.02)
    assert sum(after.values()) == pytest.approx(1.0)
    assert updated.success == pytest.approx(annotated.success, abs=0.03)
    assert updated.cost_usd == pytest.approx(annotated.cost_usd)


def test_shares_are_those_of_all_requests_not_of_the_profiled_ones(store: Path) -> None:
    told(store, "code")
    with ObservationStore.open(store) as opened:
        more = [Request(f"r{i:03}", {"q": str(i)}) for i in range(60)]
        opened.register(more)
        set_request_kinds(opened, {**request_kinds(opened), **{one.id: "code" for one in more}})
    assert root_shares(estimate(store, check=False))["answer [code]"] == pytest.approx(80 / 120, abs=1e-4)


def test_the_first_answers_are_about_eight_requests_of_each_kind_where_dollars_allow() -> None:
    ids = [f"q{i:03}" for i in range(400)]
    kinds = {name: "rare" if i % 20 == 0 else "odd" if i % 20 == 1 else "usual" for i, name in enumerate(ids)}
    template = Template((Stage("answer"),)).bind(("m0", "m1"))

    def asked(told: dict[str, str], budget: int) -> Counter[tuple[str, str]]:
        drawn = islice(PricedSampler(template, None, ids, 0, kinds=told).propose(1, [row_of(name) for name in ids]), budget)
        return Counter((kinds[path.request_id], str(path.path[0])) for path in drawn)

    def row_of(name: str) -> Observation:
        return Observation(
            request_id=name, prefix=("m0",), stage="answer", success=True, stopped=True, cost_usd=1.0, latency_s=0.0
        )

    assert asked(kinds, 24) == {(kind, "m1"): 8 for kind in ("rare", "odd", "usual")}
    assert asked({}, 24)["rare", "m1"] < 8
    assert set(kinds_first(ids, kinds)) == set(ids)
    assert len(kinds_first(ids, kinds)) == len(ids)
    assert list(kinds_first(ids, {})) == ids


def test_a_changed_mix_of_kinds_changes_shares_and_is_renewed_without_rows(store: Path) -> None:
    told(store, "code")
    with ObservationStore.open(store) as opened:
        n_rows = len(opened.observations())
        rows, template = told_apart(opened, opened.observations(), opened.identity.bound_template())
        assert {row.stage for row in rows} == {
            f"{stage} [{kind}]" for stage in ("answer", "retry") for kind in ("code", "rest")
        }
        open_rows = [row for row in rows if row.depth == 1 and row.failure is None and not row.stopped]
        assert all(row.arm is not None and row.arm.startswith("retry [") for row in open_rows)
        set_request_kinds(opened, {})
        assert request_kinds(opened) == {}
        assert len(opened.observations()) == n_rows
    assert template.kinds


@pytest.mark.parametrize("table", ["rows.csv", "rows.csv.gz"])
def test_an_export_keeps_the_kinds(store: Path, tmp_path: Path, table: str) -> None:
    told(store, "code")
    with ObservationStore.open(store) as opened:
        kinds = request_kinds(opened)
        export_store(opened, tmp_path / table)
    import_export(tmp_path / table, tmp_path / "again.db")
    with ObservationStore.open(tmp_path / "again.db") as opened:
        assert request_kinds(opened) == kinds


def test_a_merge_keeps_the_kinds_of_all_and_the_first_counts(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    shutil.copy(store, other)
    ids = told(store, "code")
    with ObservationStore.open(store) as opened:
        first = {name: kind for name, kind in request_kinds(opened).items() if name != ids[0]}
        set_request_kinds(opened, first)
    with ObservationStore.open(other) as opened:
        set_request_kinds(opened, dict.fromkeys(ids, "poem"))
    merge_stores([store, other], tmp_path / "merged.db")
    with ObservationStore.open(tmp_path / "merged.db") as opened:
        assert request_kinds(opened) == {**first, ids[0]: "poem"}


def test_a_resumed_run_with_kinds_buys_what_one_run_would(tmp_path: Path) -> None:
    workflow = toy(40, kind=lambda inputs: "even" if inputs["question"][-1] in "02468" else "odd")
    catalog = catalog_for(workflow)

    def run(path: Path, *shares: float) -> tuple[set[tuple[str, tuple[str, ...]]], dict[str, str]]:
        for share in shares:
            settings = ProfileSettings(coverage=share, seed=1, whole=ProfileLimits(coverage=0.3))
            with new_store(path, workflow) as opened:
                profile(workflow, catalog, {"test": ToyBackend()}, opened, settings)
        with ObservationStore.open(path) as opened:
            return {(row.request_id, row.prefix) for row in opened.observations()}, request_kinds(opened)

    at_once, kinds = run(tmp_path / "one.db", 0.3)
    resumed, again = run(tmp_path / "two.db", 0.1, 0.3)
    assert resumed == at_once
    assert again == kinds
    assert set(kinds.values()) == {"even", "odd"}
