"""Whether two answers are the same, by their form."""

import json
import sqlite3

import pytest

from vinelm.errors import ConfigError, WorkflowError
from vinelm.replay import Sameness
from vinelm.replay.same import form_of, message_of


def text(content):
    return message_of({"content": content})


def calls(*made):
    return message_of({"content": "", "tool_calls": [{"function": {"name": n, "arguments": json.dumps(a)}} for n, a in made]})


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("Refund", "refund.", True),
        ("  refund\n", "**Refund**", True),
        ("refund", "refunds", False),
        ("12", "12.0", True),
        ("1,200", "1200", True),
        ("$1,200.50", "1200.5", True),
        ("1,5", "15", False),
        ("50%", "0.5", False),
        ("007", "7", False),
        ("-3", "3", False),
        ("yes", "", False),
        ('{"a": 1, "b": [true, "x y"]}', '```json\n{"b": [true, "x  y"], "a": 1.0}\n```', True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": 1}', '{"a": 1, "b": 2}', False),
        ('{"a": null}', "{}", False),
        ('{"a": 1}', "a is 1", False),
        ("A whole sentence about what was asked.\n\nAnd more.", "A whole sentence about what was asked.  \nAnd more.", True),
        ("A whole sentence about what was asked of it.", "a whole sentence about what was asked of it.", False),
        ("if a and b and c and d:\n    f()\n    g()", "if a and b and c and d:\n    f()\ng()", False),
    ],
)  # fmt: skip
def test_labels_numbers_structured_output_and_text(one, other, is_same):
    assert Sameness()(text(one), text(other)) is is_same
    assert Sameness()(text(other), text(one)) is is_same or not is_same


def test_tool_calls_in_any_order():
    same = Sameness()
    one = calls(("look", {"id": 1, "deep": None}), ("find", {"q": "a"}))
    assert same(one, calls(("find", {"q": "a"}), ("look", {"deep": None, "id": 1.0})))
    assert not same(one, calls(("find", {"q": "a"})))
    assert not same(one, calls(("find", {"q": "a"}), ("look", {"deep": None, "id": 2})))
    assert not same(one, calls(("find", {"q": "a"}), ("look", {"deep": None, "id": 1}), ("look", {"deep": None, "id": 1})))
    assert not same(one, text("look"))
    assert not same(text("look"), one)
    broken = message_of({"content": None, "tool_calls": [{"function": {"name": "look", "arguments": "{oops"}}]})
    assert same(broken, broken)
    assert not same(broken, one)


def test_messages_of_every_form():
    parts = [{"type": "text", "text": "Re"}, "fund", {"type": "image_url"}]
    assert message_of({"content": parts})["content"] == "Refund"
    old = {"content": None, "function_call": {"name": "look", "arguments": '{"id": 1}'}}
    assert message_of(old)["tool_calls"] == [{"name": "look", "args": {"id": 1}}]
    langchain = {"content": "", "tool_calls": [{"name": "look", "args": {"id": 1}, "id": "x", "type": "tool_call"}]}
    assert message_of(langchain) == message_of(old)
    assert message_of(message_of(old)) == message_of(old)


def test_ignored_fields_do_not_matter():
    one, other = text('{"label": "a", "why": "x", "in": {"why": 1}}'), text('{"label": "a", "why": "y", "in": {}}')
    assert not Sameness()(one, other)
    assert Sameness(ignore=["why"])(one, other)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "x"), (2, "y"), (3, "x")])
    connection.close()
    return path


def test_sql_by_executing_it(database):
    same = Sameness(database=database)
    one = text("SELECT a FROM t WHERE b = 'x'")
    assert same(one, text("```sql\nselect t.a from t where t.b like 'x' order by a desc\n```"))
    assert not same(one, text("SELECT a FROM t"))
    assert not same(one, text("SELECT nothing FROM t"))
    assert not same(text("SELECT nothing FROM t"), text("SELECT nothing  FROM t"))
    assert not same(one, text("DROP TABLE t"))
    ordered = text("SELECT a FROM t ORDER BY a")
    assert same(ordered, text("SELECT a FROM t ORDER BY a ASC"))
    assert not same(ordered, text("SELECT a FROM t ORDER BY a DESC"))
    assert same.audit([one]) == 0.0
    assert sqlite3.connect(database).execute("SELECT count(*) FROM t").fetchone() == (3,)


def test_sql_by_its_tree_is_audited():
    same = Sameness()
    one = text("SELECT a FROM t WHERE b = 'x'")
    assert same(one, text("```sql\nselect a\nfrom t -- all\nwhere b = 'x';\n```"))
    assert not same(one, text("SELECT a FROM t WHERE b = 'X'"))
    assert same.audit([one]) == 0.2
    assert "tree" in same.how([one])


def test_text_by_a_function_is_audited(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def alike(one, other):\n    return one[0] == other[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    same = Sameness("mine:alike")
    long = "There is a good deal to be said about this."
    assert same(text(long), text("Totally different"))
    assert not same(text(long), text("A good deal"))
    assert same.audit([text(long)]) == 0.2
    assert same.audit([text("refund")]) == 0.0
    assert Sameness("mine:alike", audit=0.5).audit([text("refund")]) == 0.5
    assert Sameness().audit([text(long)]) == 0.0
    assert same.how([text(long), text("refund")]) == "text by the given function, labels and numbers by value"


def test_a_function_that_raises_is_named_without_the_text():
    def bad(one, other):
        raise KeyError(one)

    with pytest.raises(WorkflowError, match="the function given as same raised KeyError") as caught:
        Sameness(bad)(text("A secret sentence, which nobody may see."), text("Another one"))
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="same: 'alike' names no function: write module:function"):
        Sameness("alike")


def test_forms():
    said = {"refund": "label", "[1]": "structured", "WITH a AS (SELECT 1) SELECT * FROM a": "sql", "a\nb": "text"}
    said |= {"```sql\nselect a from t\n```": "sql", "With regard to what you asked, no.": "text"}
    assert {one: form_of(text(one)) for one in said} == said
    assert form_of(text("Many words " * 9)) == "text"
    assert form_of(calls(("look", {}))) == "tools"
