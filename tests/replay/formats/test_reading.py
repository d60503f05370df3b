"""Files of traces: which form they have, what cannot be read of them, and how much memory that takes."""

import csv
import gzip
import io
import json
import sys
import tracemalloc
from dataclasses import replace
from importlib.util import find_spec

import pytest
import simulated_traces

from vinelm.errors import ConfigError
from vinelm.replay import read_calls
from vinelm.replay.bill import dollars_of
from vinelm.replay.formats import records
from vinelm.replay.formats.reading import FORMATS, TraceReading

FORMS = tuple(simulated_traces.FORMS)
NAMED = {"openinference": "otel"}


def rows(form, calls=40):
    return [simulated_traces.FORMS[form](call) for call in simulated_traces.made(calls)]


def read(path, **how):
    reading = TraceReading()
    return list(read_calls(path, reading=reading, **how)), reading


def _spans(document):
    return document["resourceSpans"][0]["scopeSpans"][0]["spans"]


def as_lines(found):
    return "".join(json.dumps(row) + "\n" for row in found)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same_of_the_same_calls(form, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(as_lines(rows(form)))
    calls, reading = read(path)
    assert (reading.calls, reading.others, reading.broken) == (40, 0, 0)
    assert dict(reading.formats) == {NAMED.get(form, form): 40}
    for call, made in zip(calls, simulated_traces.made(40), strict=True):
        assert call.messages == made.messages
        assert call.step == made.step
        assert call.model == made.model
        assert (call.answer is None) == (made.error is not None)
        assert call.tools == made.tools
        assert call.seconds == pytest.approx(made.seconds, abs=1e-4)
        assert (call.response_format is None) == (made.response_format is None)
        assert call.settings == {"temperature": 0.2}
        if made.error is None:
            assert call.answer.get("tool_calls") == made.answer.get("tool_calls")
            assert (call.answer["content"] or None) == made.content
            assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (made.tokens_in, made.tokens_out, made.cached)


@pytest.mark.parametrize("form", FORMS)
def test_unknown_fields_and_values_of_another_kind_never_fail(form, tmp_path):
    path = tmp_path / "trace.jsonl"
    odd = []
    for row in rows(form, 12):
        one = _spans(row)[0] if "resourceSpans" in row else row
        for wrong in (None, [], {}, "text", 7, {"a": [{"b": None}]}, [["x"]], -1, 1e400):
            odd += [{**one, name: wrong} for name in one] + [{**one, "unheard_of": wrong}]
    path.write_text(as_lines(odd))
    calls, reading = read(path)
    assert reading.calls + reading.others + reading.broken >= len(odd)
    assert len(calls) > len(odd) / 2
    assert all("not a record of a call" not in line for line in reading.named), reading.named


@pytest.mark.parametrize("kind", ["json", "pretty", "page", "one line", "jsonl.gz", "json.gz", "csv", "csv.gz"])
def test_every_shape_of_file(kind, tmp_path):
    found = rows("langfuse")
    texts = {
        "json": json.dumps(found),
        "pretty": json.dumps(found, indent=2),
        "page": json.dumps({"data": found, "meta": {"cursor": None}}),
        "one line": f"[{', '.join(map(json.dumps, found))}]",
        "jsonl": "\r\n".join(map(json.dumps, found)),
    }
    text = io.StringIO()
    table = csv.DictWriter(text, list(found[0]))
    table.writeheader()
    table.writerows(simulated_traces._cells(row) for row in found)
    texts["csv"] = text.getvalue()
    content = texts[kind.removesuffix(".gz")].encode("utf-8-sig")
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(content) if kind.endswith("gz") else content)
    calls, reading = read(path)
    expected, _ = read(_written(tmp_path, as_lines(found)))
    assert [replace(call, where="") for call in calls] == [replace(call, where="") for call in expected]
    assert reading.broken == 0
    assert reading.bytes_done == reading.bytes_total == path.stat().st_size


def _written(folder, text, name="lines.jsonl"):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("form", ["otel", "openinference"])
def test_one_document_of_spans_is_read_span_by_span(form, tmp_path):
    spans = [_spans(row)[0] for row in rows(form)]
    scopes = [{"scope": {"name": "a"}, "spans": spans[:15]}, {"scope": {"name": "b"}, "spans": spans[15:]}, {"spans": []}]
    document = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": scopes}, {"scopeSpans": []}]}
    expected, _ = read(_written(tmp_path, as_lines(rows(form))))
    for indent in (None, 1):
        calls, reading = read(_written(tmp_path, json.dumps(document, indent=indent), "document.json"))
        assert [replace(call, where="") for call in calls] == [replace(call, where="") for call in expected]
        assert reading.broken == 0


def test_csv_cells_with_quotes_commas_and_line_breaks(tmp_path):
    row = rows("langfuse", 1)[0]
    odd = 'a "quoted", word\r\nand\nlines; ünïcode'
    row = simulated_traces._cells({**row, "input": json.dumps([{"role": "user", "content": odd}]), "output": odd})
    text = io.StringIO()
    table = csv.DictWriter(text, list(row))
    table.writeheader()
    table.writerows([row, row])
    calls, reading = read(_written(tmp_path, text.getvalue(), "trace.csv"))
    assert [call.messages[0]["content"] for call in calls] == [odd, odd]
    assert calls[0].answer["content"].splitlines() == odd.splitlines()
    assert reading.broken == 0


def test_broken_lines_are_named_and_the_others_read(tmp_path):
    good = [json.dumps(row) for row in rows("langfuse", 4)]
    lines = [
        good[0],
        '{"id": "x", "traceId": ',
        "",
        "[" * 200_000,
        '{"what": "is this"}',
        "17",
        good[1],
        good[2][:-20],
        good[3],
    ]
    path = _written(tmp_path, "\n".join(lines))
    calls, reading = read(path)
    assert len(calls) == 3
    assert reading.broken == 5
    assert [line.partition(": ")[0] for line in reading.named] == [f"{path}:{at}" for at in (2, 4, 5, 6, 8)]
    assert reading.named[0].endswith("not valid JSON: Expecting value at column 23")
    assert reading.named[2].endswith("of no known form")
    assert [call.where for call in calls] == [f"{path}:{at}" for at in (1, 7, 9)]


def test_a_cut_array_gives_what_lies_before_the_cut(tmp_path):
    found = rows("langfuse", 30)
    text = json.dumps(found, indent=1)
    path = _written(tmp_path, text[: len(text) // 2])
    calls, reading = read(path)
    assert 10 < len(calls) < 20
    assert reading.broken == 1
    line = reading.named[0]
    last = text[: len(text) // 2].count("\n") + 1
    assert last - 60 < int(line.removeprefix(f"{path}:").partition(":")[0]) <= last  # where the cut record begins, or ends
    assert "the rest of the file was not read" in line


def test_a_cut_gzip_file_gives_what_can_be_unpacked(tmp_path):
    packed = gzip.compress(as_lines(rows("langfuse", 400)).encode())
    (tmp_path / "trace.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    calls, reading = read(tmp_path / "trace.jsonl.gz")
    assert 100 < len(calls) < 300
    assert "cannot be unpacked" in reading.named[-1]


def test_csv_lines_with_other_fields_are_named(tmp_path):
    header = "id,traceId,type,startTime,model,input,output"
    text = f"{header}\n1,t,GENERATION,2025-01-01,gpt-4o,hi,yes\n1,t,GENERATION\n2,t,GENERATION,2025-01-01,gpt-4o,hi,yes\n"
    path = _written(tmp_path, text, "trace.csv")
    calls, reading = read(path)
    assert [call.call for call in calls] == ["1", "2"]
    assert reading.named == [f"{path}:3: it does not have the header's 7 fields"]


def test_a_line_longer_than_any_record_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LONGEST", 4096)
    good = [json.dumps(row) for row in rows("langfuse", 2)]
    path = _written(tmp_path, f"{good[0]}\n{json.dumps({'a': 'x' * 10_000})}\n{good[1]}\n")
    calls, reading = read(path)
    assert len(calls) == 2
    assert reading.named == [f"{path}:2: longer than 0 MiB"]


def test_folders_are_searched_and_may_hold_other_files(tmp_path):
    (tmp_path / "a").mkdir()
    _written(tmp_path, as_lines(rows("langfuse", 10)), "a/1.jsonl")
    _written(tmp_path, json.dumps(rows("litellm", 1)[0], indent=2), "a/2.json")
    _written(tmp_path, '{"files": 2}', "manifest.json")
    _written(tmp_path, "", "empty.jsonl")
    _written(tmp_path, "not for us", "readme.md")
    calls, reading = read([tmp_path, tmp_path / "a" / "2.json"])
    assert len(calls) == 12
    assert dict(reading.formats) == {"langfuse": 10, "litellm": 2}
    assert reading.named == [f"{tmp_path}/manifest.json:1: of no known form"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it holds no record"),
        ("\n\n", "it holds no record"),
        ("hello\nworld\n", "of no known form"),
        ('{"a": 1}\n{"b": 2}', "of no known form"),
        ("\x00\x01\x02", "it holds no record"),
        ("[1, 2", "not valid JSON"),
        ("{", "not valid JSON"),
    ],
)
def test_a_file_in_which_nothing_can_be_read_is_one_line(text, said, tmp_path):
    path = _written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_call_a_missing_path_and_an_unknown_format_are_refused(tmp_path):
    spans = [{**row, "type": "SPAN"} for row in rows("langfuse", 3)]
    with pytest.raises(ConfigError, match="3 records, none of them a call of a model"):
        read(_written(tmp_path, as_lines(spans)))
    with pytest.raises(ConfigError, match="no such file"):
        read(tmp_path / "nowhere.jsonl")
    with pytest.raises(ConfigError, match="unknown format 'csv': it is one of vinelm, otel"):
        read(_written(tmp_path, as_lines(spans)), format="csv")
    with pytest.raises(ConfigError, match="no record of litellm"):
        read(_written(tmp_path, as_lines(spans)), format="litellm")


def test_redact_sees_each_call_first(tmp_path):
    path = _written(tmp_path, as_lines(rows("otel", 3)))
    calls, _ = read(path, redact=lambda call: replace(call, messages=()))
    assert [call.messages for call in calls] == [(), (), ()]
    with pytest.raises(ConfigError, match=r":1: redact returned a NoneType, not a LoggedCall"):
        read(path, redact=lambda call: None)

    def failing(call):
        raise ValueError(call.messages[0]["content"])

    with pytest.raises(ConfigError) as caught:
        read(path, redact=failing)
    assert "redact fails with ValueError" in str(caught.value)
    assert "parcel" not in str(caught.value)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
@pytest.mark.parametrize("form", ["langfuse", "langsmith"])
def test_parquet(form, tmp_path):
    path = tmp_path / "trace.parquet"
    simulated_traces.write(path, form, simulated_traces.made(1100))
    calls, reading = read(path)
    expected, _ = read(_written(tmp_path, as_lines(rows(form, 1100))))
    assert [replace(call, where="") for call in calls] == [replace(call, where="") for call in expected]
    assert calls[0].where == f"{path}, row 1"
    assert reading.broken == 0


def test_parquet_without_pyarrow_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "trace.parquet").write_bytes(b"PAR1....")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'vinelm\[parquet\]'"):
        read(tmp_path / "trace.parquet")


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("json", marks=pytest.mark.long), "csv", "one.json"])
def test_memory_does_not_grow_with_the_file(kind, tmp_path):
    """Peaks of files of 1.4 and 4.2 MB differ by less than a piece of either."""

    def peak(calls):
        path = tmp_path / f"{calls}.{kind}"
        simulated_traces.write(path, "langfuse", simulated_traces.made(calls))
        if kind == "one.json":
            path.write_text(f'{{"data": {path.read_text()}}}'.replace("\n", ""))
        assert path.stat().st_size > 1_300 * calls / 2
        tracemalloc.start()
        for _ in read_calls(path):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    small, large = peak(900), peak(2700)
    assert large < small + 500_000
    assert large < 8_000_000


def test_every_form_is_tried_by_name(tmp_path):
    for form in FORMS:
        path = _written(tmp_path, as_lines(rows(form, 6)))
        assert len(read(path, format=NAMED.get(form, form))[0]) == 6
    assert set(FORMATS) == {NAMED.get(form, form) for form in FORMS} | {"vinelm"}


def batch_lines(calls, prefix="request"):
    """The two files of a batch of OpenAI's, the responses in another order than the requests."""
    asked, answered = [], []
    for number, row in enumerate(rows("openai", calls)):
        id_ = f"{prefix}-{number}"
        asked.append({"custom_id": id_, "method": "POST", "url": "/v1/chat/completions", "body": row["request"]})
        response = {"status_code": 200, "request_id": "r", "body": row["response"]}
        answered.append({"id": f"batch_req_{number}", "custom_id": id_, "response": response, "error": None})
    return asked, answered[::-1]


@pytest.mark.parametrize("way", ["requests first", "responses first", "one file", "whole lines"])
def test_a_batch_has_its_prompts_whichever_half_comes_first(way, tmp_path):
    asked, answered = batch_lines(12)
    files = {"requests first": [asked, answered], "responses first": [answered, asked], "one file": [asked + answered]}
    whole = [{**one, "body": two["body"]} for one, two in zip(answered, asked[::-1], strict=True)]
    for number, lines in enumerate(files.get(way, [whole])):
        (tmp_path / f"{number}.jsonl").write_text(as_lines(lines))
    calls, reading = read(tmp_path)
    assert (reading.calls, reading.others, reading.broken) == (12, 0, 0)
    made = {line["custom_id"]: line["body"]["messages"] for line in asked}
    assert all(list(call.messages) == made[f"request-{number}"] for call in calls for number in [call.call.split("_")[-1]])
    assert all(call.answer is not None or call.error for call in calls)


def test_calls_of_a_batch_cost_half_of_the_list_price(tmp_path):
    asked, answered = batch_lines(1)
    (tmp_path / "a.jsonl").write_text(as_lines(asked + answered))
    (call,), _ = read(tmp_path / "a.jsonl")
    plain = replace(call, settings={}, cached_tokens=0)
    assert dollars_of(replace(call, cached_tokens=0)) == pytest.approx(dollars_of(plain) / 2)


def test_halves_of_several_batches_with_the_same_ids_are_not_mixed_up(tmp_path):
    for batch in "ab":
        asked, answered = batch_lines(3)
        (tmp_path / f"1-{batch}.jsonl").write_text(as_lines(asked))
        (tmp_path / f"2-{batch}.jsonl").write_text(as_lines(answered))
    calls, reading = read(tmp_path)
    assert (reading.calls, reading.others, reading.broken) == (6, 0, 0), "the same prompts, whichever batch they are of"
    assert all(call.messages for call in calls)
    asked, answered = batch_lines(3)
    other = [{**one, "body": {**one["body"], "messages": [{"role": "user", "content": "Another"}]}} for one in asked]
    (tmp_path / "1-b.jsonl").write_text(as_lines(other))
    calls, reading = read(tmp_path)
    assert [call.messages for call in calls] == [()] * 6
    assert (reading.calls, reading.others, reading.broken) == (6, 0, 6)
    assert "several lines have the custom_id 'request-0'" in " ".join(reading.named)


def test_no_prompt_of_one_batch_has_the_answer_of_another(tmp_path):
    """The first batch's answers come last: its prompts must not be taken for those of the second batch's answers."""
    asked, answered = batch_lines(3)
    others = [{**one, "response": {**one["response"], "request_id": "other"}} for one in answered]
    for number, lines in enumerate((asked, others, answered)):
        (tmp_path / f"{number}.jsonl").write_text(as_lines(lines))
    calls, reading = read(tmp_path)
    assert [call.messages for call in calls] == [()] * 6
    assert "several lines have the custom_id" in " ".join(reading.named)


def test_requests_without_a_response_are_no_calls(tmp_path):
    asked, answered = batch_lines(5)
    (tmp_path / "a.jsonl").write_text(as_lines(asked + answered[:3]))
    assert [one.calls for _, one in [read(tmp_path)]] == [3]
    (tmp_path / "a.jsonl").write_text(as_lines(asked))
    with pytest.raises(ConfigError, match="5 records, none of them a call of a model"):
        read(tmp_path)


def test_reading_tells_how_far_it_is(tmp_path):
    path, told = tmp_path / "trace.jsonl", []
    path.write_text(as_lines(rows("openai", 3000)))
    calls = read_calls(path, on_progress=lambda reading: told.append((reading.calls, reading.bytes_done, reading.bytes_total)))
    assert len(list(calls)) == 3000
    assert [calls for calls, _, _ in told] == sorted({calls for calls, _, _ in told})
    assert len(told) == 3
    assert all(0 < done <= total for _, done, total in told)
