"""SQL agent: counts and sums over a table of orders."""

import random
import re

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from shapes.kit import Prompt, Shape, Use
from shapes.sql_agent.database import ITEMS, TOWNS, connect
from shapes.sql_agent.graph import build

from vinelm import Loop, Request, Stage, Template, Workflow


def requests(count=1000):
    rng, rows, connection = random.Random(10), [], connect()
    for number in range(count):
        town, item, year = rng.choice(TOWNS), rng.choice(ITEMS), rng.randrange(2020, 2026)
        if number % 2:
            question = f"How many orders of the item {item} came from {town}?"
            query = f"SELECT COUNT(*) FROM orders WHERE item = '{item}' AND town = '{town}'"
        else:
            question = f"How many pieces were ordered in {town} in {year}?"
            query = f"SELECT COALESCE(SUM(pieces), 0) FROM orders WHERE town = '{town}' AND year = {year}"
        answer = str(connection.execute(query).fetchone()[0])
        rows.append(Request(f"q{number}", {"question": question, "query": query, "answer": answer}))
    connection.close()
    return rows


def schema(prompt: Prompt, is_right: bool):
    return Use("sql_db_schema", {"table_names": "orders" if is_right else "order"})


def wrong_query(prompt: Prompt):
    """A query with an unknown column, or without its last condition."""
    query = prompt.row["query"]
    return query.replace("town", "city") if prompt.rng.random() < 0.5 else query.split(" AND ")[0]


def query(prompt: Prompt, is_right: bool):
    """The first query; where the last one failed, another; else the answer. A right model notices a wrong query."""
    ran = [message.text for message in prompt.messages if isinstance(message, ToolMessage) and message.name == "sql_db_query"]
    if not ran or "Error" in ran[-1]:
        return Use("sql_db_query", {"query": prompt.row["query"] if is_right else wrong_query(prompt)})
    if is_right and prompt.calls[-1]["args"].get("query") != prompt.row["query"]:
        return Use("sql_db_query", {"query": prompt.row["query"]})
    return f"The answer is {''.join(re.findall(r'-?[0-9]+', ran[-1])[:1])}."


def check(prompt: Prompt, is_right: bool):
    """A right checker knows the columns; the question it does not see."""
    return Use("sql_db_query", {"query": prompt.last.text.replace("city", "town") if is_right else prompt.last.text})


def score(request, state):
    last = state["messages"][-1]
    return isinstance(last, AIMessage) and last.text == f"The answer is {request.data['answer']}."


shape = Shape(
    Workflow(
        name="sql-agent",
        template=Template(
            (
                Stage("call_get_schema", answerable=False),
                Loop((Stage("generate_query"), Stage("check_query", answerable=False)), times=4),
            )
        ),
        build=build,
        requests=requests(),
        inputs=lambda request: {"messages": [HumanMessage(request.data["question"])]},
        labels=("answer", "query"),
        score=score,
    ),
    answers={"call_get_schema": schema, "generate_query": query, "check_query": check},
    skills={"call_get_schema": {"filters": -4.0}, "generate_query": {"joins": 0.3}, "check_query": {"nesting": -0.5}},
    demands=lambda prompt: {"joins": 0.8} if prompt.stage == "generate_query" and "CREATE TABLE" not in prompt.text else {},
)
