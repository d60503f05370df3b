import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.workflows.nl2sql.prompts import digest, extract_sql


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT 1", "SELECT 1"),
        ("  select 1;\n", "select 1;"),
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("```SQL\r\nSELECT 1\r\n```", "SELECT 1"),
        ("```\nSELECT 1\n```", "SELECT 1"),
        ("```sqlite\nSELECT 1;\n```\nThat counts them.", "SELECT 1;"),
        ("```sql SELECT 1 ```", "SELECT 1"),
        ("First:\n```sql\nSELECT 1\n```\nBetter:\n```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT 1\n```\nIt gives\n```text\n1\n```", "SELECT 1"),
        ("```sql\nSELECT 1\nFROM t", "SELECT 1\nFROM t"),
        ("Here you are:\nSQL: SELECT a\nFROM t", "SELECT a\nFROM t"),
        ("SQLQuery: WITH x AS (SELECT 1) SELECT * FROM x", "WITH x AS (SELECT 1) SELECT * FROM x"),
        ("The answer:\nwith x as (select 1) select * from x", "with x as (select 1) select * from x"),
        ("SELECT '```' FROM t WHERE a = '```x'", "SELECT '```' FROM t WHERE a = '```x'"),
        ("Answer: ```sql\nSELECT 1\n```", "SELECT 1"),
        ("```SELECT 1```", "SELECT 1"),
        ("```sql\nSELECT '`' || a\n```", "SELECT '`' || a"),
        ("SELECT 1;\n\nThis counts them.", "SELECT 1"),
        ("SELECT 1;\nSELECT 2", "SELECT 1;\nSELECT 2"),
        ("SELECT 1\n```", "SELECT 1"),
        ("SQL:\nSELECT 1", "SELECT 1"),
        ("I cannot say.", "I cannot say."),
        ("", ""),
        ("```sql\n```", "```sql\n```"),
    ],
)
def test_sql_out_of_an_answer(text, sql):
    assert extract_sql(text) == sql


@settings(max_examples=40)
@given(st.text())
def test_any_text_gives_some_text(text):
    assert extract_sql(text) == extract_sql(text).strip()


@given(st.text(alphabet=st.characters(exclude_characters="`", codec="utf-8"), min_size=1).map(str.strip).filter(bool))
def test_what_was_fenced_comes_back(sql):
    assert extract_sql(f"Sure!\n```sql\n{sql}\n```\nDone.") == sql


def test_the_digest_follows_the_prompts(monkeypatch):
    before = digest()
    assert before == digest()
    monkeypatch.setattr("vinelm.workflows.nl2sql.prompts.REPAIR", "Mend it.")
    assert digest() != before
