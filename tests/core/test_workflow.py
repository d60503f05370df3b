import gzip

import numpy as np
import pytest
from kit.templates import make_template

from vinelm.errors import DatasetError
from vinelm.judging import llm_judge
from vinelm.requests.dataset import read_jsonl, split_requests
from vinelm.requests.workflow import Request, Workflow


def write(tmp_path, *lines, name="data.jsonl"):
    path = tmp_path / name
    text = "\n".join(lines)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["data.jsonl", "data.jsonl.gz"])
def test_reads_plain_and_gzip(tmp_path, name):
    requests = read_jsonl(write(tmp_path, '{"id": 7, "question": "q"}', "", '{"id": "x", "question": "r"}', name=name))
    assert [r.id for r in requests] == ["7", "x"]
    assert requests[1].data["question"] == "r"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['{"id": 1, "question": "q"}', "{oops"], r"data.jsonl:2: not valid JSON"),
        (["[1, 2]"], r"data.jsonl:1: expected a JSON object, found list"),
        (['{"id": 1}'], r"data.jsonl:1: the key 'question' is missing"),
        (['{"id": 1, "question": "q"}', '{"id": 1, "question": "r"}'], r"data.jsonl:2: the id '1' repeats line 1"),
        (['{"id": "", "question": "q"}'], r"data.jsonl:1: 'id' is empty"),
        ([""], "empty"),
    ],
)
def test_malformed_lines_are_named(tmp_path, lines, says):
    with pytest.raises(DatasetError, match=says) as caught:
        read_jsonl(write(tmp_path, *lines), required=["question"])
    assert "\n" not in str(caught.value)


def test_missing_truncated_and_binary_files(tmp_path):
    with pytest.raises(DatasetError, match="cannot read"):
        read_jsonl(tmp_path / "none.jsonl")
    whole = gzip.compress(b'{"id": 1}\n' * 1000)
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match="cannot read"):
        read_jsonl(tmp_path / "cut.jsonl.gz")
    (tmp_path / "bin.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="cannot read"):
        read_jsonl(tmp_path / "bin.jsonl")


def test_a_request_keeps_its_side_when_the_dataset_grows():
    requests = [Request(str(i), {}) for i in range(400)]
    training, held_out = split_requests(requests, 0.4, seed=3)
    assert 0.3 < len(held_out) / 400 < 0.5
    assert {r.id for r in training} | {r.id for r in held_out} == {r.id for r in requests}
    fewer = split_requests(requests[:200], 0.4, seed=3)
    assert {r.id for r in fewer[1]} == {r.id for r in held_out if int(r.id) < 200}
    assert split_requests(requests, 0.4, seed=4)[1] != held_out


def workflow(**fields):
    base = {"name": "w", "template": make_template(), "build": lambda vine: None, "score": lambda request, state: True}
    return Workflow(**base | {"requests": [Request("a", {"question": "q", "answer": "42"})]} | fields)


def test_labels_never_enter_the_graph():
    assert workflow(labels=("answer",)).graph_input(Request("a", {"question": "q", "answer": "42"})) == {"question": "q"}
    assert workflow(inputs=lambda r: {"n": r.id}).graph_input(Request("a", {})) == {"n": "a"}


def test_datasets_must_identify_their_requests():
    with pytest.raises(DatasetError, match="no requests"):
        workflow(requests=[])
    with pytest.raises(DatasetError, match="repeats"):
        workflow(requests=[Request("a", {}), Request("a", {})])


def test_a_changed_label_is_another_dataset():
    changed = workflow(requests=[Request("a", {"question": "q", "answer": "43"})])
    assert changed.dataset_digest != workflow().dataset_digest
    assert workflow().dataset_digest == workflow().dataset_digest


NAN = float("nan")


class NAType:
    """As pandas' NA: it is neither equal to itself nor different from it."""

    def __ne__(self, other):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None

    def __eq__(self, other):
        raise TypeError("boolean value of NA is ambiguous")


def labelled(score, *golds, labels=("gold",)):
    rows = [Request(f"r{i}", {"q": "?", "gold": gold}) for i, gold in enumerate(golds)]
    return workflow(score=score, requests=rows, labels=labels)


@pytest.mark.parametrize("missing", [NAN, np.float32("nan"), np.datetime64("NaT"), NAType()])
@pytest.mark.parametrize(
    ("score", "labels"),
    [(lambda request, state: True, ("gold",)), (llm_judge("openai:x", rubric="It is right.", label="gold"), ())],
)
def test_a_label_that_is_no_number_is_refused(missing, score, labels):
    """No answer equals it: every model was wrong, and the profile was paid for nothing."""
    with pytest.raises(DatasetError, match="request 'r1' has NaN as its label 'gold'") as caught:
        labelled(score, "4", missing, labels=labels)
    assert "\n" not in str(caught.value)


def test_other_labels_are_taken():
    right = [None, "nan", 0.0, float("inf"), [NAN], np.array([1.0, NAN]), {"a": 1}]
    assert len(labelled(lambda request, state: True, *right).requests) == len(right)
    assert labelled(lambda request, state: True, NAN, labels=()).requests  # an input, which is the graph's to judge
