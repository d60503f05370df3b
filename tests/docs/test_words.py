"""Pages say what they say in few words that readers know; `tests/docs/words.json` has limits that only come down."""

import json

import pytest
import words as script


def test_no_figure_is_above_its_limit():
    limits = json.loads(script.LIMITS.read_text(encoding="utf-8"))
    wrong = list(script.above(script.figures(), limits))
    assert not wrong, "\n".join([*wrong, "say it in fewer or plainer words: python scripts/words.py"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("An arm of its own.", {"arm": 1, "of its own": 1}),
        ("The dearest arms\ngo on. Army, alarm, dearth.", {"arm": 1, "dear": 1, "goes on": 1}),
        ("It is no use: so much of\ntheir own.", {"is no": 1, "so many": 1, "of its own": 1}),
        ("A branch is cheap.", {}),
    ],
)
def test_words_are_found_as_words(text, found):
    assert {name: n for name, n in script.listed([text]).items() if n} == found


def test_code_is_no_prose():
    page = "An arm.\n\n```python\narm = 1\n```\n\nThe `arm` of <!-- arm --> it.\n"
    assert script.listed([script.prose(page)])["arm"] == 1


def test_a_module_says_comments_and_texts():
    source = '"""An arm."""\narm = "arm"  # an arm\nprint(f"{arm} is an arm")\n'
    assert script.listed(list(script.said(source)))["arm"] == 3


def test_limits_come_down_and_new_pages_have_none():
    limits = {"words": 10, "long": {"a.md": 2, "b.md": 1}}
    found = {"words": 9, "long": {"a.md": 1, "c.md": 1}}
    assert list(script.above(found, limits)) == ["long c.md: 1, more than 0"]
    assert script.lower(found, limits) == {"words": 9, "long": {"a.md": 1}}
    assert list(script.above({"words": 11, "long": {}}, limits)) == ["words: 11, more than 10"]
    none_left = script.lower({"words": 9, "long": {}}, limits)
    assert list(script.above(found, none_left)) == ["long a.md: 1, more than 0", "long c.md: 1, more than 0"]
