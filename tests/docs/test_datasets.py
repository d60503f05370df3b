"""Every example of docs/profiling.md is read as it stands, and gives the same request."""

import json
import re
import shlex
import sys
import types
from pathlib import Path

import pytest

from vinelm.datasets import Columns, read_dataset
from vinelm.datasets.reading import with_dataset
from vinelm.requests.workflow import Request, Workflow

PAGE = (Path(__file__).parents[2] / "docs" / "profiling.md").read_text(encoding="utf-8")
FORMATS = PAGE.split("## Formats")[1].split("## From a row")[0]
EXAMPLE = re.compile(r"`([\w.]+)`\)?(?:, with `([^`]*)`)?[^`\n]*:\n\n```(python)?\n(.*?)```", re.DOTALL)
EXAMPLES = EXAMPLE.findall(FORMATS)


def saved(table, folder):
    """What `datasets` writes, which is not installed here."""
    import pyarrow as pa

    Path(folder).mkdir()
    with pa.ipc.new_stream(str(Path(folder) / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table)
    (Path(folder) / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))


def stand_in():
    import pyarrow as pa

    module = types.ModuleType("datasets")
    module.Dataset = type("Dataset", (), {})

    def from_dict(columns):
        made = module.Dataset()
        made.save_to_disk = lambda folder: saved(pa.table(columns), folder)
        return made

    module.Dataset.from_dict = staticmethod(from_dict)
    return module


def test_every_format_has_an_example():
    assert [name for name, *_ in EXAMPLES] == [
        "questions.csv", "fragen.csv", "questions.jsonl", "questions.json", "questions.parquet", "questions",
        "langsmith.jsonl", "langsmith.csv", "langfuse.json", "items.csv",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "language", "text"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_an_example_gives_the_request(tmp_path, monkeypatch, name, options, language, text):
    monkeypatch.chdir(tmp_path)
    if language:
        pytest.importorskip("pyarrow")
        monkeypatch.setitem(sys.modules, "datasets", stand_in())
        exec(text, {})
    else:
        Path(name).write_text(text)
    words = shlex.split(options)
    assert set(words[::2]) <= {"--column"}
    columns = Columns.parse(words[1::2])
    own = Request("1", {"question": "?", "answer": "!"})
    app = Workflow(name="w", build=lambda _: None, requests=[own], score=lambda *_: True, labels=("answer",))
    (request,) = with_dataset(app, read_dataset(name, columns)).requests
    assert request.id == "q1"
    assert (request.data["question"], request.data["answer"]) == ("What is 2 + 3?", "5")
