"""Kinds of request in a store: declared, written, made anew, learnt and estimated."""

from pathlib import Path

import pytest
from kit.stores import made_store

from vinelm.api.estimation import estimate
from vinelm.errors import WorkflowError
from vinelm.signals.kind import kind_of
from vinelm.template import Loop, Stage, Template
from vinelm.template.kinds import learnt_kind, learnt_kinds, of_kinds, without_kinds
from vinelm.traces import ObservationStore
from vinelm.traces.store.kinds import request_kinds, set_request_kinds, told_apart


def test_kinds_of_few_requests_and_beyond_the_sixteenth_are_other() -> None:
    labels = [f"k{i:02}" for i in range(20) for _ in range(15 + i)] + ["rare"] * 14
    learnt = learnt_kinds(labels)
    assert learnt == (*(f"k{i:02}" for i in range(4, 20)), "other")
    assert learnt_kind("rare", learnt) == learnt_kind("unseen", learnt) == learnt_kind(None, learnt) == "other"
    assert learnt_kinds(["one"] * 50) == learnt_kinds([]) == ()


def test_a_template_of_kinds_gives_back_the_template_and_its_plain_form() -> None:
    base = Template((Stage("a"), Loop((Stage("b"),), times=2)), exits=("b",))
    template = of_kinds(base, ("x", "other"))
    assert without_kinds(template) == base
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


def test_the_roots_arms_have_the_shares_of_the_kinds(store: Path) -> None:
    before = estimate(store, check=False)
    told(store, "code")
    annotated = estimate(store, check=False)
    assert annotated.template.kinds == ("code", "rest", "other")
    shares = {annotated.trie.stages[annotated.trie.stage[u]]: annotated.arm[u] for u in annotated.trie.children(0)}
    assert shares == pytest.approx({"answer [code]": 1 / 3, "answer [rest]": 2 / 3, "answer [other]": 0.0}, abs=1e-6)
    told(store, None)
    again = estimate(store, check=False)
    assert again.template == before.template
    assert again.success.tobytes() == before.success.tobytes()


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
