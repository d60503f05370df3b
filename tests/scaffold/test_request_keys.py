"""What becomes the input of a graph, and where its answer is."""

import json

import pytest

from vinelm import as_today
from vinelm.datasets import read_dataset
from vinelm.judging import llm_judge
from vinelm.scaffold.request_keys import request_keys


def dataset(folder, **row):
    (folder / "d.jsonl").write_text(json.dumps({"id": "1", **row}) + "\n")
    return read_dataset(folder / "d.jsonl")


@pytest.mark.parametrize(
    ("keys", "row", "inputs", "label", "answer", "is_sure"),
    [
        (("question", "answer"), {"question": "q", "answer": "a"}, (("question", "question"),), "answer", "answer", True),
        (("messages",), {"query": "q", "gold": "a"}, (("messages", "query"),), "gold", "messages", True),
        (("messages", "output"), {"text": "q", "label": "a"}, (("messages", "text"),), "label", "output", True),
        (("input", "result"), {"question": "q", "expected": "a"}, (("input", "question"),), "expected", "result", False),
        (("topic", "jokes"), {"topic": "q"}, (("topic", "topic"),), None, None, False),
        (("alpha", "beta"), {"question": "q"}, (("alpha", "question"),), None, None, False),
    ],
)
def test_names_decide_where_they_agree(tmp_path, keys, row, inputs, label, answer, is_sure):
    found = request_keys(keys, keys, dataset(tmp_path, **row))
    assert (found.inputs, found.label, found.answer, found.is_sure) == (inputs, label, answer, is_sure)


@pytest.mark.parametrize(
    ("outputs", "answer"),
    [
        (("messages", "kind_decision"), "kind_decision"),  # named like the label
        (("messages", "kind_decision", "final_kind"), "messages"),  # which of the two is not known
        (("messages", "mankind"), "messages"),
        (("kind_reason", "kind"), "kind"),
    ],
)
def test_a_key_with_the_labels_name_in_its_own_has_the_answer(tmp_path, outputs, answer):
    rows = dataset(tmp_path, question="q", kind="a")
    assert request_keys(("question",), outputs, rows, ["kind"]).answer == answer


def test_several_labels_are_no_inputs_and_parts_of_the_answer_where_the_state_has_them_all(tmp_path):
    rows = dataset(tmp_path, mail="m", category="c", order="o")
    found = request_keys(("mail", "category", "order"), ("mail", "category", "order"), rows, ("category", "order"))
    assert found.inputs == (("mail", "mail"),)
    assert (found.labels, found.shared, found.is_sure) == (("category", "order"), ("category", "order"), True)
    found = request_keys(("mail", "category"), ("mail", "category"), rows, ("category", "order"))
    assert (found.labels, found.shared, found.is_sure) == (("category", "order"), (), False)


def test_without_a_dataset_the_usual_names_stand(tmp_path):
    found = request_keys(("messages",), ("messages",), None)
    assert (found.inputs, found.label, found.answer) == ((("messages", "question"),), None, "messages")


def test_the_answer_of_a_structured_response_is_its_field(tmp_path):
    rows = dataset(tmp_path, question="?", answer="42")
    keys = ("messages", "structured_response")
    found = request_keys(("messages",), keys, rows, structured=("reasoning", "answer"))
    assert (found.answer, found.field, found.is_read) == ("structured_response", "answer", True)
    unclear = request_keys(("messages",), keys, rows, structured=("value", "unit"))
    assert (unclear.field, unclear.is_read) == ("value", False)
    assert request_keys(("messages",), keys, rows).answer == "messages"


def test_the_last_message_of_a_state_with_keys_of_its_own_is_a_guess(tmp_path):
    rows = dataset(tmp_path, ticker="A", action="buy")
    found = request_keys(("messages", "data"), ("messages", "data"), rows, ("action",))
    assert (found.answer, found.is_read, found.is_sure) == ("messages", False, False)
    assert request_keys(("messages",), ("messages",), rows, ("action",)).is_read


def test_it_is_known_whether_requests_lack_a_label(tmp_path):
    file = tmp_path / "d.jsonl"
    labelled, other = {"id": "1", "question": "q", "answer": "a"}, {"id": "2", "question": "r"}
    for rows, label, unlabelled in (
        ([labelled], "answer", False),
        ([other, labelled], "answer", True),  # not only the first row says which columns there are
        ([labelled, {**other, "answer": ""}], "answer", True),
        ([other], None, True),
    ):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = request_keys(("question",), ("answer",), read_dataset(file))
        assert (found.label, found.unlabelled) == (label, unlabelled)
    assert not request_keys(("question",), ("answer",), None).unlabelled


@pytest.mark.parametrize(
    ("label", "is_one"), [(0, True), (False, True), ("no", True), (None, False), (" ", False), (float("nan"), False)]
)
def test_what_a_label_is_everyone_reads_alike(tmp_path, label, is_one):
    rows = dataset(tmp_path, question="?", answer=label)
    request = rows.requests[0]
    assert request_keys(("question",), ("answer",), rows, ("answer",)).unlabelled is not is_one
    assert as_today(score=lambda *_: True, labels=("answer",)).is_labelled(request) is is_one
    assert llm_judge("gpt-5", rubric="Is it right?", label="answer").is_labelled(request) is is_one
