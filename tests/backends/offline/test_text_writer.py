import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.backends import TextWriter
from vinelm.errors import DatasetError
from vinelm.requests.workflow import Request

LABELS = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=30), st.just("I do not know")
)


@given(label=LABELS, kind=st.sampled_from(TextWriter.kinds), seed=st.integers())
def test_wrong_differs_from_right(label, kind, seed):
    writer, request = TextWriter(), Request("1", {"answer": label})
    right = writer.right(request, random.Random(seed))
    wrong = writer.wrong(request, kind, random.Random(seed))
    assert right == str(label)
    assert wrong.strip().lower() != right.strip().lower()
    assert wrong == writer.wrong(request, kind, random.Random(seed))


def test_near_miss_of_a_number_is_a_number():
    writer = TextWriter("label")
    assert int(writer.wrong(Request("1", {"label": "17"}), "near_miss", random.Random(1))) != 17
    assert float(writer.wrong(Request("1", {"label": 2.5}), "near_miss", random.Random(1))) != 2.5


def test_longer_rows_demand_more_and_labels_do_not_count():
    writer = TextWriter()
    skills = [writer.skills(Request("1", {"q": "x" * n, "answer": "y" * 5000}))["length"] for n in (0, 400, 5000)]
    assert skills == [0.0, 0.4, 1.0]


def test_a_row_without_label_is_named():
    with pytest.raises(DatasetError, match="request '1': the row has no 'answer'"):
        TextWriter().right(Request("1", {}), random.Random(0))
