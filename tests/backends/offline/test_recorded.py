import csv
import datetime
import gzip
import json

import pytest
from langchain_core.messages import HumanMessage

from vinelm.backends import RecordedBackend
from vinelm.catalog import Model, Price
from vinelm.errors import ConfigError, DatasetError
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Request

ROWS = [
    {"question_id": "1", "model": "big", "prediction": "SELECT 1,\n2", "seconds": "1.5"},
    {"question_id": "2", "model": "big", "prediction": "", "seconds": ""},
    {"question_id": "1", "model": "small", "prediction": "SELEC", "seconds": "0.25"},
]
PRICE = Price(input=0, output=0, call=0.02, source="assumed", as_of=datetime.date(2026, 1, 1))
BIG, SMALL, NONE = (
    Model(name=f"rec-{name}", provider="recorded", model_id=name, engine=name, price=PRICE) for name in ("big", "small", "none")
)


def write(path, rows=ROWS):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        if ".csv" in path.name:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz"])
def test_answers_what_was_recorded(name, tmp_path, make_call):
    backend = RecordedBackend(write(tmp_path / name))
    assert isinstance(backend, Backend)
    assert not backend.is_simulated
    assert backend.is_virtual_time
    call, usages = make_call(Request("1", {}), "rec-small", "rec-big")
    assert backend.chat_model(BIG, call).invoke([HumanMessage("a" * 41)]).text == "SELECT 1,\n2"
    (usage,) = usages
    assert (usage.cost_usd, usage.tokens_in, usage.tokens_out) == (0.02, 11, 3)
    assert usage.tokens_estimated
    assert usage.latency_s == call.clock.now() == 0.0
    assert usage.ttft_s is None


def test_an_empty_answer_is_an_answer(tmp_path, make_call):
    backend = RecordedBackend(write(tmp_path / "a.csv"))
    call, _ = make_call(Request("2", {}), "rec-big")
    assert backend.answer(BIG, call, 10)[0] == ""
    assert [chunk.text for chunk in backend.chat_model(BIG, call).stream("q")] == [""]


def test_recorded_latency_passes_on_the_clock(tmp_path, make_call):
    backend = RecordedBackend(write(tmp_path / "a.csv"), latency_column="seconds")
    call, usages = make_call(Request("1", {}), "rec-big")
    backend.chat_model(BIG, call).invoke("q")
    assert call.clock.now() == usages[0].latency_s == 1.5


def test_recorded_cost_comes_before_the_price(tmp_path, make_call):
    backend = RecordedBackend(write(tmp_path / "a.csv", [dict(ROWS[0], usd="0.5")]), cost_column="usd")
    assert backend.answer(BIG, make_call(Request("1", {}), "rec-big")[0], 10)[1].cost_usd == 0.5
    with pytest.raises(DatasetError, match=r"a.csv:3: usd is None: it must be a finite number >= 0"):
        RecordedBackend(write(tmp_path / "a.csv", [dict(ROWS[0], usd="")]), cost_column="usd")


def test_other_column_names(tmp_path, make_call):
    rows = [{"qid": 7, "system": "big", "text": "A"}]
    backend = RecordedBackend(
        write(tmp_path / "a.jsonl", rows), id_column="qid", model_column="system", answer_column="text", real_time=True
    )
    assert not backend.is_virtual_time
    assert backend.answer(BIG, make_call(Request("7", {}), "rec-big")[0], 1)[0] == "A"


def test_unknown_model_request_and_missing_request(tmp_path, make_call):
    backend = RecordedBackend(write(tmp_path / "a.csv"))
    call, _ = make_call(Request("1", {}), "x")
    with pytest.raises(ConfigError, match=r"model 'rec-none': .* no system 'none': it has big, small$"):
        backend.chat_model(NONE, call)
    with pytest.raises(DatasetError, match=r"a.csv: no answer of 'small' to request '2'"):
        backend.answer(SMALL, make_call(Request("2", {}), "x")[0], 1)
    with pytest.raises(ConfigError, match="the recorded backend answers from the request's row: pass request="):
        backend.chat_model(BIG, make_call(None, "x")[0])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "question_id,model,prediction\n1,a,x\n1,a,y\n", r"a.csv:3: a second answer of 'a' to request '1'"),
        ("a.csv", "question_id,model\n1,a\n", r"a.csv:1: no column 'prediction': the table has question_id, model"),
        ("a.csv", "question_id,model,prediction\n1,a\n", r"a.csv:2: the line does not have the header's 3 fields"),
        ("a.csv", "question_id,model,prediction\n", r"a.csv: the table is empty"),
        ("a.jsonl", '{"question_id": 1}\n{', r"a.jsonl:1: no column 'model'"),
        ("a.jsonl", "{", r"a.jsonl:1: not valid JSON"),
        ("a.jsonl", "[]", r"a.jsonl:1: expected a JSON object, found list"),
        ("a.csv.gz", "plain", r"a.csv.gz: cannot read the table"),
        ("a.txt", "", r"a.txt: unknown table format: the file name must end in .csv"),
    ],
)
def test_bad_tables_name_file_and_line(name, text, message, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises((ConfigError, DatasetError), match=message) as caught:
        RecordedBackend(path)
    assert "\n" not in str(caught.value)


def test_missing_table_and_bad_latency(tmp_path):
    with pytest.raises(DatasetError, match="cannot read the table"):
        RecordedBackend(tmp_path / "none.csv")
    rows = [dict(ROWS[0], seconds="soon")]
    with pytest.raises(DatasetError, match=r"a.csv:3: seconds is 'soon': it must be a finite number >= 0"):
        RecordedBackend(write(tmp_path / "a.csv", rows), latency_column="seconds")


def test_a_model_that_is_asked_again_gives_its_next_recorded_answer(tmp_path, make_call):
    rows = [
        {"exam": "sat", "number": "1", "model": "big", "round": "1", "letter": "A"},
        {"exam": "sat", "number": "1", "model": "big", "round": "2", "letter": "C"},
        {"exam": "sat", "number": "1", "model": "small", "round": "1", "letter": "B"},
    ]
    columns = {"id_column": "exam/number", "answer_column": "letter", "round_column": "round"}
    backend = RecordedBackend(write(tmp_path / "a.csv", rows), **columns)

    def answer(model, *prefix):
        return backend.answer(model, make_call(Request("sat/1", {}), *prefix)[0], 10)[0]

    assert answer(BIG, "rec-big") == "A"
    assert answer(BIG, "rec-big", "rec-big") == "C"
    assert answer(BIG, "rec-big", "rec-small", "rec-big") == "C"
    assert answer(BIG, "rec-big", "rec-big", "rec-big") == "C"
    assert answer(SMALL, "rec-big", "rec-big", "rec-small") == "B"
    with pytest.raises(DatasetError, match=r"a\.csv:3: a second answer of 'big' to request 'sat/1' in round 1"):
        RecordedBackend(write(tmp_path / "a.csv", [rows[0], rows[0]]), **columns)
    with pytest.raises(DatasetError, match=r"a\.csv:2: round is 0: answers are numbered from 1"):
        RecordedBackend(write(tmp_path / "a.csv", [rows[0] | {"round": "0"}]), **columns)


def test_recorded_tokens_come_before_estimates(tmp_path, make_call):
    rows = [ROWS[0] | {"in": "900", "out": "40"}, ROWS[2] | {"in": "", "out": "7"}]
    backend = RecordedBackend(write(tmp_path / "a.csv", rows), tokens_in_column="in", tokens_out_column="out")
    whole = backend.answer(BIG, make_call(Request("1", {}), "rec-big")[0], 10)[1]
    assert (whole.tokens_in, whole.tokens_out, whole.tokens_estimated) == (900, 40, False)
    part = backend.answer(SMALL, make_call(Request("1", {}), "rec-small")[0], 10)[1]
    assert (part.tokens_in, part.tokens_out, part.tokens_estimated) == (3, 7, True)


def test_an_outcome_stands_for_an_answer_whose_length_is_recorded(tmp_path, make_call):
    rows = [row | {"chars": "41"} for row in ROWS]
    backend = RecordedBackend(write(tmp_path / "a.csv", rows), answer_column="model", chars_column="chars", prompt_tokens=900)
    text, usage = backend.answer(BIG, make_call(Request("1", {}), "rec-big")[0], 10)
    assert text == "big"
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_estimated) == (900, 11, True)
    with pytest.raises(ConfigError, match="prompt_tokens is -1"):
        RecordedBackend(tmp_path / "a.csv", prompt_tokens=-1)
