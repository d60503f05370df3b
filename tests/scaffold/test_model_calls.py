"""Where an application makes its models, and the edit that puts ``vine.around(...)`` there and changes nothing else."""

import gc
import re
import subprocess
import sys
from types import ModuleType

import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel

from vinelm.scaffold.model_calls import edited, model_calls


class ChatAnthropic(FakeListChatModel):
    """A class of the name that LangChain's package gives it."""


def init_chat_model(model: str, **_: object) -> None:
    """As LangChain names it."""


def create_agent(model: str | BaseChatModel, tools: object = ()) -> None:
    """As LangChain names it."""


def app(folder, source: str) -> ModuleType:
    path = folder / "app_of_test.py"
    path.write_text(source, encoding="utf-8")
    module = ModuleType("app_of_test")
    module.__file__ = str(path)
    vars(module).update(
        Model=ChatAnthropic, init_chat_model=init_chat_model, create_agent=create_agent, lc=sys.modules[__name__]
    )
    return module


@pytest.mark.parametrize(
    ("line", "call", "model"),
    [
        ('llm = Model(model="claude-haiku-4-5")', 'Model(model="claude-haiku-4-5")', "anthropic:claude-haiku-4-5"),
        ('llm = lc.ChatAnthropic("x").bind(stop="é")', 'lc.ChatAnthropic("x")', "anthropic:x"),
        ('é = 1; llm = init_chat_model("openai:gpt-5")', 'init_chat_model("openai:gpt-5")', "openai:gpt-5"),
        ('llm = init_chat_model("claude-opus-4-5")', 'init_chat_model("claude-opus-4-5")', "anthropic:claude-opus-4-5"),
        ("llm = init_chat_model(NAME)", "init_chat_model(NAME)", None),
        ('agent = create_agent("openai:gpt-5", [])', '"openai:gpt-5"', "openai:gpt-5"),
        ('agent = create_agent(model="openai:gpt-5")', '"openai:gpt-5"', "openai:gpt-5"),
        ("def node(state):\n    return Model().invoke(state)", "Model()", None),
    ],
)
def test_calls_that_make_a_model_are_found_and_wrapped(tmp_path, line, call, model):
    module = app(tmp_path, f'"""An app."""\nimport os\n\n{line}\n')
    (found,) = model_calls(module, tmp_path)
    assert (found.source, found.model) == (call, model)
    new = edited(found.path, [found], "models.toml")
    assert line.replace(call, f"vine.around({call})") in new
    assert new.index("import os") < new.index('vine = VineLM("models.toml")') < new.index("vine.around(")
    compile(new, "app", "exec")
    assert set(found.path.read_text(encoding="utf-8").splitlines()) - set(new.splitlines()) == {line.splitlines()[-1]}
    found.path.write_text(new, encoding="utf-8")
    assert all(one.is_wrapped for one in model_calls(module, tmp_path))


class ModelFallbackMiddleware:
    """As LangChain names it."""

    def __init__(self, *models: str | BaseChatModel, model: str | BaseChatModel | None = None, name: str = "") -> None: ...


def init_embeddings(model: str) -> None: ...


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ('x = ModelFallbackMiddleware("gpt-5-mini", "openai:gpt-5")', ['"gpt-5-mini"', '"openai:gpt-5"']),
        ('x = ModelFallbackMiddleware(model="gpt-5-mini")', ['"gpt-5-mini"']),
        ('agent = create_agent("gpt-5", tools=[])', ['"gpt-5"']),
        ("agent = create_agent(NAME)", ["NAME"]),
        ("agent = create_agent(f'openai:{NAME}')", ["f'openai:{NAME}'"]),
        ('import os\nagent = create_agent(os.environ["M"])', ['os.environ["M"]']),
        ('agents = [{"name": "critic", "prompt": "criticise", "model": NAME}]', ["NAME"]),
        ("agent = create_agent(CHAT)", []),
        ("import types\nsettings = types.SimpleNamespace(model=NAME)", []),
        ('x = ModelFallbackMiddleware(name="openai:gpt-5")', []),
        ('x = init_embeddings("openai:text-embedding-3-small")', []),
    ],
)
def test_what_names_a_model_in_the_place_of_one_is_wrapped(tmp_path, line, texts):
    module = app(tmp_path, f"{line}\n")
    vars(module).update(
        NAME="openai:gpt-5-mini",
        CHAT=ChatAnthropic(responses=["a"]),
        ModelFallbackMiddleware=ModelFallbackMiddleware,
        init_embeddings=init_embeddings,
    )
    found = model_calls(module, tmp_path)
    assert [one.source for one in found] == texts
    for text in texts:
        assert f"vine.around({text})" in edited(found[0].path, found, "m.toml")


def test_what_makes_no_model_is_left_alone(tmp_path):
    source = 'agent = create_agent(llm)\nname = "Model()"\nprint(len([1]))\n'
    assert model_calls(app(tmp_path, source), tmp_path) == []


def test_several_in_one_file_are_all_wrapped(tmp_path):
    module = app(tmp_path, 'a = Model()\nb = [Model(), Model(model="claude-x")]\n')
    found = model_calls(module, tmp_path)
    assert len(found) == 3
    assert edited(found[0].path, found, "m.toml").count("vine.around(Model(") == 3


def test_an_import_behind_the_model_is_not_waited_for(tmp_path):
    found = model_calls(app(tmp_path, "import os\nllm = Model()\nimport sys\n"), tmp_path)
    lines = edited(found[0].path, found, "m.toml").splitlines()
    assert lines.index('vine = VineLM("m.toml")') < lines.index("llm = vine.around(Model())") < lines.index("import sys")


def test_line_ends_and_a_vine_that_is_there_stay(tmp_path):
    module = app(tmp_path, "")
    path = tmp_path / "app_of_test.py"
    made = b"import os\r\nvine = VineLM('m.toml')\r\nllm = "
    path.write_bytes(made + b"Model()\r\n")
    assert edited(path, model_calls(module, tmp_path), "m.toml") == f"{made.decode()}vine.around(Model())\r\n"
    path.write_bytes(b"import os\r\nllm = Model()\r\n")
    new = edited(path, model_calls(module, tmp_path), "m.toml")
    assert new.count("\r\n") == new.count("\n") == 6


@pytest.mark.parametrize(
    "source",
    ["vine = 1\nllm = Model()\n", "import vine\nllm = Model()\n", "llm = Model()\ndef grow(vine):\n    return vine\n"],
    ids=["variable", "module", "parameter"],
)
def test_a_name_of_the_application_is_not_taken(tmp_path, source):
    module = app(tmp_path, "")
    (tmp_path / "app_of_test.py").write_text(source)
    new = edited(tmp_path / "app_of_test.py", model_calls(module, tmp_path), "m.toml")
    assert 'vinelm_models = VineLM("m.toml")' in new
    assert "llm = vinelm_models.around(Model())" in new
    assert source.replace("Model()", "vinelm_models.around(Model())").splitlines()[-1] in new


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("first", ["import os", "x = 'ü'"])
def test_files_are_edited_whatever_ends_their_lines_and_begins_them(tmp_path, end, mark, first):
    module = app(tmp_path, "")
    path = tmp_path / "app_of_test.py"
    path.write_bytes(f"{mark}{first}{end}llm = Model(temperature=0){end}".encode())
    new = edited(path, model_calls(module, tmp_path), "m.toml")
    added = ["from vinelm import VineLM", "", 'vine = VineLM("m.toml")']
    lines = [*added, first] if first != "import os" else [first, "", *added]
    assert new == mark + end.join([*lines, "llm = vine.around(Model(temperature=0))", ""])


WRITTEN = """
import os

settings = {"api_key": os.environ.get("KEY"), "timeout": 20}
llm = Model(
    model="claude-x",  # the large one
    temperature=0.2,
    model_kwargs={"user": "me"},
    **settings,
).with_fallbacks([lc.ChatAnthropic("claude-y", max_retries=9)]).with_retry()


class Agents:
    def __init__(self):
        self.big, self.small = Model(model="claude-big"), Model(model="claude-small")


def make(name, *, fast=False):
    return Model(model=name, thinking={"budget_tokens": 9}) if fast else init_chat_model(name, model_provider="anthropic")
"""


def test_an_edit_only_adds(tmp_path):
    """Without the wrappers and the two lines that make ``vine`` the file is what it was, comments and all."""
    module = app(tmp_path, WRITTEN)
    found = model_calls(module, tmp_path)
    new = edited(found[0].path, found, "models.toml")
    assert new.count("vine.around(") == len(found) == 6
    bare = new.replace("from vinelm import VineLM\n", "", 1).replace('\nvine = VineLM("models.toml")\n', "", 1)
    for call in found:
        bare = bare.replace(f"vine.around({call.source})", call.source)
    assert bare.split() == WRITTEN.split()
    assert 'llm = vine.around(Model(\n    model="claude-x",  # the large one\n' in new


def test_a_model_that_a_library_has_made_is_wrapped_where_it_comes(tmp_path):
    module = app(tmp_path, "llm = library.make()\nother = library.name()\n")
    library = ModuleType("library")
    module.library, module.llm, module.other = library, ChatAnthropic(responses=["a"]), "text"
    library.make = library.name = len  # of no file of the application
    (found,) = model_calls(module, tmp_path)
    assert found.source == "library.make()"


def test_a_long_line_is_read_once(tmp_path, monkeypatch):
    """Splitting it for each of its nodes took minutes."""
    module = app(tmp_path, "")
    source = "x = [" + ", ".join(["'é'", *(f"Model(temperature={number})" for number in range(300))]) + "]\n"
    (tmp_path / "app_of_test.py").write_text(source)
    split, parsed = [], []
    monkeypatch.setattr(
        "vinelm.scaffold.model_calls.lines_of", lambda text: split.append(text) or text.splitlines(keepends=True)
    )
    monkeypatch.setattr("ast.get_source_segment", lambda *_: parsed.append(1))
    found = model_calls(module, tmp_path)
    assert len(found) == 300
    assert found[-1].source == "Model(temperature=299)"
    assert len(split) == 1
    assert parsed == []


def test_a_file_in_another_encoding_is_left_alone(tmp_path):
    module = app(tmp_path, "")
    (tmp_path / "app_of_test.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\nllm = Model()\n")
    assert model_calls(module, tmp_path) == []


class Importing:
    """Garbage that imports something when it is collected, and leaves the next of its kind."""

    left = 5000

    def __init__(self):
        self.cycle = self

    def __del__(self):
        sys.modules[f"imported_by_garbage_{Importing.left}"] = ModuleType("garbage")
        Importing.left -= 1
        if Importing.left > 0:
            Importing()


def test_modules_are_read_while_garbage_imports_more(tmp_path):
    module, thresholds = app(tmp_path, "x = 1\n"), gc.get_threshold()
    held = [(number, number) for number in range(4000)]  # so that no freed tuple is at hand: new ones may start a collection
    gc.set_threshold(1)
    try:
        Importing()
        assert (model_calls(module, tmp_path), len(held)) == ([], 4000)
    finally:
        gc.set_threshold(*thresholds)
        Importing.left = 0
        gc.collect()
        for name in [name for name in sys.modules.copy() if name.startswith("imported_by_garbage")]:
            del sys.modules[name]


@pytest.mark.parametrize(
    "head",
    [
        "import os\n\nfrom langchain_core.language_models import FakeListChatModel\n",
        "import os\n\nfrom langchain_core.language_models import FakeListChatModel\nfrom zlibrary import z\n\n"
        "from app_of_test import own\n",
        '"""Docs."""\n\nfrom __future__ import annotations\n\nimport os\nfrom pathlib import Path\n',
        "import os\n\nfrom . import own\n",
        "import os\n",
    ],
)
def test_the_edited_file_passes_the_usual_linter(tmp_path, head):
    """Every import is used as before, and ours stands in the order of the others."""
    used = [name for name in ("z", "own", "Path") if re.search(rf"import {name}\b", head)]
    if "FakeListChatModel" not in head:
        used.append("FakeListChatModel")
    source = f"{head}\nprint({', '.join(['os', *(name for name in used if name != 'FakeListChatModel')])})\nllm = MODEL\n"
    module = app(tmp_path, "")
    path = tmp_path / "app_of_test.py"
    module.FakeListChatModel = FakeListChatModel
    path.write_text(source.replace("MODEL", 'FakeListChatModel(responses=["a"])'))
    path.write_text(edited(path, model_calls(module, tmp_path), "m.toml"))
    line = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F401,I001,E402", "--no-cache", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{path.read_text()}"
