"""README is short, its picture and its number are those of its output, and its changed lines work."""

import re
import sys
from pathlib import Path

import pytest
from langchain_core.language_models import BaseChatModel

from vinelm import VineLM

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.search(r"\$ vinelm demo --no-open\n(.*?)```", README, re.DOTALL)[1]


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import readme_length

        yield readme_length
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def test_it_is_short(script):
    assert list(script.Length.of(README).faults()) == []


def test_no_comment_stands_on_more_than_one_line():
    assert not [found for found in re.findall(r"<!--.*?-->", README, re.DOTALL) if "\n" in found]


@pytest.mark.parametrize(
    ("page", "faults"),
    [
        ("word " * 29 + "word. Short. Short.", []),
        ("word " * 30 + "word. Short. Short.", ["a sentence of 31 words, more than 30: word word"]),
        ("Not long. " * 451, ["902 words: at most 900"]),
        ("word " * 15 + "word.", ["16.0 words a sentence on average: at most 15"]),
        ("- one two\n- three four\n" * 9 + "\n## A heading " + "word " * 40, []),
        ("```\n" + "word " * 40 + "\n```\n", []),
        ("| a | " + "word " * 31 + "|\n", ["a sentence of 31 words, more than 30: word"]),
        ("<!-- " + "word " * 950 + "-->\nA [link of words](page.md), and *one more.* Next.", []),
    ],
)
def test_what_is_too_long_is_named(script, page, faults):
    found = list(script.Length.of(page).faults())
    assert len(found) == len(faults)
    assert all(one.startswith(start) for one, start in zip(found, faults, strict=True))


def test_words_and_sentences_are_counted_as_they_are_read(script):
    found = script.Length.of("# Title\n\nOne [two](a.md) - three.  *Four* five!\nSix\n\n1. Seven eight\n\n| nine | --- |\n")
    assert found.sentences == ("One two - three.", "*Four* five!", "Six", "Seven eight")
    assert (found.words, found.mean, found.cells) == (11, 2.0, ("nine",))


def test_its_number_and_its_picture_are_those_of_the_output():
    text = " ".join(BLOCK.split())
    cost, points, ends = re.search(r"costs (\d+) % less than .*? at (\S+) points of accuracy \((.*?)\)", text).groups()
    assert f"**{cost} % cheaper than gpt-4-turbo on every call, at {points} points of accuracy ({ends}).**" in README
    drawn = (ROOT / "docs" / "pictures" / "demo.svg").read_text(encoding="utf-8")
    shown = re.findall(r"^(.+?)(?: on every call.*?|, for a tenth.*?)?  +([\d.]+ %)", BLOCK, re.MULTILINE)
    assert {f"{name}, {right}" for name, right in shown if name != "best fixed plan"} == set(
        re.findall(r">([\w.-]+, [\d.]+ %)</text>", drawn)
    )


def test_the_changed_lines_make_what_they_name(monkeypatch):
    import agents
    import langchain_openai
    import openai
    import pydantic_ai.providers.openai

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    lines = re.search(r"## One changed line\n\n```python\n(.*?)```", README, re.DOTALL)[1]
    given = {
        "ChatOpenAI": langchain_openai.ChatOpenAI,
        "OpenAI": openai.OpenAI,
        "AsyncOpenAI": openai.AsyncOpenAI,
        "OpenAIChatCompletionsModel": agents.OpenAIChatCompletionsModel,
        "OpenAIProvider": pydantic_ai.providers.openai.OpenAIProvider,
        "vine": VineLM(["openai:gpt-5", "openai:gpt-5-mini"]),
    }
    exec(lines, given)
    assert isinstance(given["llm"], BaseChatModel)
    assert isinstance(given["client"], openai.OpenAI)
    assert isinstance(given["model"], agents.OpenAIChatCompletionsModel)
    assert isinstance(given["provider"].client, openai.AsyncOpenAI)
    assert len(re.findall(r"vine\.around\(", lines)) == 4
