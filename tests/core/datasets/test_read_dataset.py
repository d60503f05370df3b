"""Datasets of every format become the same requests; what is wrong is one line that names file and place."""

import gzip
import json
import os
from dataclasses import replace

import pytest

from vinelm.datasets import Columns, read_dataset
from vinelm.datasets import text_records as text
from vinelm.datasets.reading import with_dataset
from vinelm.errors import ConfigError, DatasetError
from vinelm.judging import llm_judge
from vinelm.requests.workflow import Request, Workflow

ROWS = [{"id": "a", "question": "1 + 1?", "answer": "2"}, {"id": "b", "question": 'so-called "x", y', "answer": "né\n2"}]
CUT = gzip.compress(b'{"q": 1}\n' * 500, mtime=0)[:-20]
CSV = 'id,question,answer\na,1 + 1?,2\nb,"so-called ""x"", y","né\n2"\n'


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(path, *, columns=None, limit=None):
    return [dict(request.data) for request in read_dataset(path, columns, limit=limit).requests]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", CSV),
        ("rows.csv", "\ufeff" + CSV.replace("\n", "\r\n").replace("né\r\n2", "né\n2")),
        ("rows.csv", CSV.replace("id,question,answer", "id;question;answer").replace("a,1 + 1?,2", "a;1 + 1?;2")
         .replace('b,"', 'b;"').replace('","né', '";"né')),
        ("rows.tsv", CSV.replace("id,question,answer", "id\tquestion\tanswer").replace("a,1 + 1?,2", "a\t1 + 1?\t2")
         .replace('b,"', 'b\t"').replace('","né', '"\t"né')),
        ("rows.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("rows.jsonl", jsonl(ROWS)),
        ("rows.ndjson", "\n" + jsonl(ROWS)),
        ("rows.jsonl.gz", gzip.compress(jsonl(ROWS).encode(), mtime=0)),
        ("rows.json", json.dumps(ROWS, indent=1)),
        ("rows.json", json.dumps({"examples": ROWS, "name": "mine"}, indent=1)),
        ("rows.json", jsonl(ROWS)),
    ],
)  # fmt: skip
def test_text_formats_hold_the_same_rows(tmp_path, name, content):
    dataset = read_dataset(written(tmp_path / name, content))
    assert [dict(request.data) for request in dataset.requests] == ROWS
    assert [request.id for request in dataset.requests] == ["a", "b"]
    assert dataset.labels == ()


def arrow_folder(folder, rows, *, kind="stream", files=1):
    """A folder as ``Dataset.save_to_disk`` writes it."""
    pa = pytest.importorskip("pyarrow")
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    names = [f"data-{i:05d}-of-{files:05d}.arrow" for i in range(files)]
    share = -(-len(rows) // files)
    for i, name in enumerate(names):
        part = table.slice(i * share, share)
        new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with new(str(folder / name), table.schema) as writer:
            writer.write_table(part)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("kind", "files"), [("stream", 1), ("stream", 2), ("file", 1)])
def test_a_folder_that_datasets_saved(tmp_path, kind, files):
    folder = arrow_folder(tmp_path / "saved", ROWS, kind=kind, files=files)
    assert rows_of(folder) == ROWS
    assert rows_of(folder / f"data-00000-of-{files:05d}.arrow") == ROWS[: 2 // files]


def test_the_splits_of_a_folder(tmp_path):
    arrow_folder(tmp_path / "both" / "train", ROWS)
    arrow_folder(tmp_path / "both" / "test", ROWS[:1])
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(DatasetError, match=r"holds the splits train, test: name one of them, for example .*both/train"):
        read_dataset(tmp_path / "both")
    assert rows_of(tmp_path / "both" / "test") == ROWS[:1]
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert rows_of(tmp_path / "both") == ROWS


def test_parquet_and_a_downloaded_folder(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    from datetime import date
    from decimal import Decimal

    import pyarrow as pa

    rows = [{"q": str(i), "day": date(2026, 1, 2), "price": Decimal("1.50"), "deep": {"a": [i]}} for i in range(600)]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:400]), tmp_path / "data" / "train-00000-of-00002.parquet")
    pq.write_table(pa.Table.from_pylist(rows[400:]), tmp_path / "data" / "train-00001-of-00002.parquet")
    wanted = [{"q": str(i), "day": "2026-01-02", "price": "1.50", "deep": {"a": [i]}} for i in range(600)]
    assert rows_of(tmp_path) == wanted
    assert rows_of(tmp_path / "data" / "train-00001-of-00002.parquet", limit=3) == wanted[400:403]
    pq.write_table(pa.Table.from_pylist(rows[:1]), tmp_path / "data" / "test-00000-of-00001.parquet")
    with pytest.raises(DatasetError, match=r"splits test, train: name one of them, for example .*test-00000-of-00001.parquet"):
        read_dataset(tmp_path)


LANGSMITH = {"id": "e1", "inputs": {"question": "q"}, "outputs": {"answer": "2"}, "metadata": {"by": "me"}, "dataset_id": "d"}
LANGFUSE = {
    "id": "i1", "datasetName": "d", "status": "ACTIVE", "input": {"question": "q"}, "expectedOutput": {"answer": "2"},
    "metadata": {"by": "me"}, "sourceTraceId": None,
}  # fmt: skip


def csv_cells(row):
    names = ",".join(row)
    cells = [json.dumps(value) if isinstance(value, dict) else value or "" for value in row.values()]
    return names + "\n" + ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"


@pytest.mark.parametrize(
    ("name", "content", "request_id"),
    [
        ("x.jsonl", jsonl([LANGSMITH]), "e1"),
        ("x.json", json.dumps([LANGSMITH]), "e1"),
        ("x.csv", csv_cells(LANGSMITH), "e1"),
        ("x.csv", 'id,inputs.question,outputs.answer,metadata\ne1,q,2,"{""by"": ""me""}"\n', "e1"),
        ("x.json", json.dumps([LANGFUSE], indent=2), "i1"),
        ("x.jsonl", jsonl([LANGFUSE, {**LANGFUSE, "id": "i2", "status": "ARCHIVED"}]), "i1"),
        ("x.csv", csv_cells(LANGFUSE), "i1"),
    ],
)
def test_exports_of_langsmith_and_langfuse(tmp_path, name, content, request_id):
    dataset = read_dataset(written(tmp_path / name, content))
    (request,) = dataset.requests
    assert request.id == request_id
    assert dict(request.data) == {"question": "q", "answer": "2", "metadata": {"by": "me"}}
    assert sorted(dataset.labels) == ["answer", "metadata"]


def test_a_langfuse_item_of_plain_text(tmp_path):
    dataset = read_dataset(written(tmp_path / "x.csv", "id,input,expected_output,metadata\n1,How many?,two,\n"))
    assert dict(dataset.requests[0].data) == {"input": "How many?", "expected_output": "two"}
    assert dataset.labels == ("expected_output",)


def test_columns_are_renamed_and_labels_hidden_under_every_name(tmp_path):
    path = written(tmp_path / "x.csv", "nr,Frage,gold,level\n7,q,2,hard\n")
    columns = Columns.parse(["input.question=Frage", "label.answer=gold", "id=nr"])
    dataset = read_dataset(path, columns)
    assert [(request.id, dict(request.data)) for request in dataset.requests] == [("7", {"question": "q", "answer": "2"})]
    assert dataset.labels == ("answer",)
    (label_only,) = read_dataset(path, Columns.parse(["label.answer=gold"])).requests
    assert dict(label_only.data) == {"nr": "7", "Frage": "q", "level": "hard", "answer": "2"}
    collides = written(tmp_path / "y.jsonl", jsonl([{"inputs": {"text": "q"}, "outputs": {"text": "2"}}]))
    with pytest.raises(DatasetError, match=r"y.jsonl:1: the key 'text' is in 'inputs' and in 'outputs': name the label"):
        read_dataset(collides)
    (request,) = read_dataset(collides, Columns.parse(["input.question=inputs.text", "label.answer=outputs.text"])).requests
    assert dict(request.data) == {"question": "q", "answer": "2"}


@pytest.mark.parametrize("spec", ["=x", "x=", "", "input=x", "input.=x", "label.a", "id"])
def test_a_column_that_names_nothing(spec):
    with pytest.raises(ConfigError, match=r"names no column: write input\.KEY=COLUMN"):
        Columns.parse([spec])


def test_a_key_of_two_columns():
    with pytest.raises(ConfigError, match="the key 'a' is given two columns"):
        Columns.parse(["input.a=x", "label.a=y"])


def test_ids_follow_the_content_not_the_place(tmp_path):
    rows = [{"q": "1"}, {"q": "2"}]
    first = read_dataset(written(tmp_path / "x.jsonl", jsonl(rows)))
    second = read_dataset(written(tmp_path / "y.csv", "q\n2\n3\n1\n"))
    ids = {request.data["q"]: request.id for request in second.requests}
    assert [request.id for request in first.requests] == [ids["1"], ids["2"]]
    assert len(set(ids.values())) == 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "a,b\n1,2\n3\n", r"x.csv:3: the row has 1 fields and the header 2: quote a value that holds ','"),
        ("x.csv", 'a,b\n1,2\n3,"4\n5,6\n', r"x.csv:3: not valid CSV: unexpected end of data: look for a quote"),
        ("x.csv", "a,,b\n1,2,3\n", r"x.csv:1: column 2 has no name"),
        ("x.csv", "a,b,a\n1,2,3\n", r"x.csv:1: the column 'a' repeats"),
        ("x.csv", "a,b\n", "x.csv: the dataset is empty"),
        ("x.csv", "", "x.csv: .*"),
        ("x.csv", "q\nnaïve\n".encode("latin-1"), r"x.csv:2: not UTF-8 at byte 3: save the file as UTF-8"),
        ("x.csv", "q\n1\n".encode("utf-16"), r"x.csv:1: the file is UTF-16: save it as UTF-8"),
        ("x.csv", "id,q\n1,a\n1,b\n", r"x.csv:3: the id '1' repeats that of .*x.csv:2: ids must be unique"),
        ("x.csv", "q\na\nb\na\n", r"x.csv:4: the same row as .*x.csv:2: take it out, or give the rows ids"),
        ("x.csv", "id,q\n,a\n", r"x.csv:2: 'id' is empty"),
        ("x.jsonl", '{"q": 1}\n{"q": \n', r"x.jsonl:2: not valid JSON: Expecting value at column"),
        ("x.jsonl", '{"q": 1}\n[1]\n', r"x.jsonl:2: expected a JSON object, found list"),
        ("x.jsonl", '{"a": ' * 100_000, r"x.jsonl:1: not JSON that can be read"),
        ("x.jsonl", '{"a": ' + "9" * 5000 + "}\n", r"x.jsonl:1: not JSON that can be read"),
        ("x.jsonl.gz", CUT, r"x.jsonl.gz:\d+: (cannot read the dataset|the same row)"),
        ("x.jsonl.gz", b'{"q": 1}\n', r"x.jsonl.gz:1: cannot read the dataset: Not a gzipped file"),
        ("x.json", '{"q": 1,\n "r": }', r"x.json: not valid JSON: Expecting value at line 2, column 7"),
        ("x.json", '"text"', r"x.json: holds no list of rows"),
        ("x.json", "[1]", r"x.json, item 1: expected a JSON object, found int"),
        ("x.parquet", b"PAR1 no", r"x.parquet: cannot read the dataset: "),
        ("x.arrow", b"no arrow at all", r"x.arrow: cannot read the dataset: "),
        ("x.xlsx", b"PK", r"x.xlsx: unknown format: the file name must end in .csv, .tsv, .json"),
        ("x.parquet.gz", b"", r"unknown format"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_that_names_the_place(tmp_path, name, content, message):
    if name.endswith((".parquet", ".arrow")):
        pytest.importorskip("pyarrow")
    with pytest.raises(DatasetError, match=message) as error:
        read_dataset(written(tmp_path / name, content))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path, message in [
        (tmp_path / "pipe.csv", "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        (tmp_path, "a folder without a dataset"),
        (tmp_path / "none.csv", "cannot read the dataset: no such file"),
        ("a\0b.csv", "cannot read the dataset: embedded null byte"),
    ]:
        with pytest.raises(DatasetError, match=message):
            read_dataset(path)
    (tmp_path / "state.json").write_text("[1")
    with pytest.raises(DatasetError, match=r"state.json: not the description of a dataset"):
        read_dataset(tmp_path)
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "../../etc/passwd.arrow"}]}')
    with pytest.raises(DatasetError, match=r"passwd.arrow: cannot read the dataset"):
        read_dataset(tmp_path)


def test_a_large_file_is_read_as_a_stream(tmp_path, monkeypatch):
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        file.write(jsonl(ROWS).encode())
        file.truncate(10 * 2**30)  # a hole of 10 GiB, which takes no space
    assert rows_of(path, limit=2) == ROWS
    with pytest.raises(DatasetError, match=r"large.jsonl:3: the line is longer than 64 MiB: is this a dataset\?"):
        read_dataset(path)
    monkeypatch.setattr("vinelm.datasets.reading.MAX_CHARS", 150)
    many = written(tmp_path / "many.jsonl", jsonl({"q": i} for i in range(99)))
    with pytest.raises(DatasetError, match="all of them are kept in memory: limit how many are read") as error:
        read_dataset(many)
    assert error.value.code == "dataset-too-large"
    monkeypatch.setattr(text, "MAX_JSON_BYTES", 10)
    with pytest.raises(DatasetError, match=r"larger than 0 MiB: give JSON lines"):
        read_dataset(written(tmp_path / "x.json", json.dumps(ROWS, indent=1)))


def workflow(**own):
    return Workflow(
        name="w", build=lambda vine: None, score=lambda request, state: True, labels=("answer",),
        requests=[Request("1", own or {"id": "1", "question": "q", "answer": "2"})],
    )  # fmt: skip


def test_a_workflow_takes_the_requests(tmp_path):
    dataset = read_dataset(written(tmp_path / "x.jsonl", jsonl([LANGSMITH])))
    taken = with_dataset(workflow(), dataset)
    assert taken.labels == ("answer", "metadata")
    assert taken.graph_input(taken.requests[0]) == {"question": "q"}


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("Frage,answer\nq,2\n", "dataset-input", r"x.csv:2: no 'question', which the workflow takes as input: the row has"),
        ("question,gold\nq,2\n", "dataset-label", r"x.csv:2: no 'answer', which the workflow takes as label: .*'gold'"),
        ("question,answer\nq,2\nr,\n", "dataset-no-label", r"x.csv:3: the label 'answer' is empty"),
    ],
)
def test_a_key_that_the_workflow_needs_is_missing(tmp_path, content, code, message):
    dataset = read_dataset(written(tmp_path / "x.csv", content))
    with pytest.raises(DatasetError, match=message) as error:
        with_dataset(workflow(), dataset)
    assert error.value.code == code
    if "label" in code:
        judged = replace(workflow(), score=llm_judge("m", rubric="It is right."))
        assert with_dataset(judged, dataset).requests == dataset.requests


@pytest.mark.parametrize(("name", "ids"), [("d.jsonl", ("1", "2")), ("d.json", ("item 1", "item 2"))])
def test_rows_that_are_named_by_their_place_have_one_name_wherever_the_file_lies(tmp_path, monkeypatch, name, ids):
    rows = [json.dumps({"question": "a"})] * 2
    for folder in (tmp_path, tmp_path / "other"):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(rows) if name == "d.jsonl" else f"[{','.join(rows)}]")
    monkeypatch.chdir(tmp_path)
    for path in (name, tmp_path / name, tmp_path / "other" / name):
        assert tuple(request.id for request in read_dataset(path, may_repeat=True).requests) == ids
