import json

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.backends.resolver import ModelResolver
from vinelm.clock import VirtualClock
from vinelm.policies import ForcedPolicy
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.graph import SHOWN_CHARS, SHOWN_ROWS, Stages, finished, make_build, outcome_text


class Scripted:
    """A vine whose one model answers from a list. Keeps the stages asked for and the prompts."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    def stage(self, name, fn, *, state=None, default=None):
        def node(state: fn.__annotations__.get("state", dict)):
            return fn(state, self._model(name))

        return node

    def _model(self, name):
        vine = self

        class Model:
            def invoke(self, messages):
                vine.calls.append((name, messages[-1].content))
                return AIMessage(vine.answers.pop(0))

        return Model()

    def route(self, fn, *, again, end, times=None):
        return lambda state: end if fn(state) else again

    def finish(self, state: dict):
        return {}


@pytest.fixture
def databases(folder) -> Databases:
    return Databases(folder / "databases")


def run(databases, *answers, **options):
    vine = Scripted(*answers)
    app = make_build(databases)(vine).compile()
    return app.invoke({"question": "Who lives in Oslo?", "db_id": "shop"}, **options), vine


def test_a_first_answer_that_gives_rows_ends_it(databases):
    state, vine = run(databases, "```sql\nSELECT name FROM customer WHERE city = 'Oslo'\n```")
    assert [name for name, _ in vine.calls] == ["generate"]
    assert state == {
        "question": "Who lives in Oslo?",
        "db_id": "shop",
        "sql": "SELECT name FROM customer WHERE city = 'Oslo'",
        "status": "ok",
        "error": None,
        "columns": ["name"],
        "rows": [["Ann"], ["Di"]],
        "row_count": 2,
        "is_truncated": False,
    }
    (_, prompt) = vine.calls[0]
    assert "Who lives in Oslo?" in prompt
    assert "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT);" in prompt


def test_errors_and_empty_results_are_repaired(databases):
    state, vine = run(
        databases,
        "SELECT nam FROM customer",
        "SELECT name FROM customer WHERE city = 'oslo'",
        "DELETE FROM customer",
        "SELECT name FROM customer WHERE city = 'Oslo'",
    )
    assert [name for name, _ in vine.calls] == ["generate", "repair", "repair", "repair"]
    prompts = [prompt for _, prompt in vine.calls]
    assert "SELECT nam FROM customer" in prompts[1]
    assert "no such column: nam" in prompts[1]
    assert "It ran and gave no rows." in prompts[2]
    assert "refused" in prompts[3]
    assert all("CREATE TABLE orders" in prompt and "Who lives in Oslo?" in prompt for prompt in prompts)
    assert state["rows"] == [["Ann"], ["Di"]]


def test_a_repair_below_a_good_answer_sees_its_first_rows(databases):
    stages = Stages(databases)
    state = {"question": "?", "db_id": "shop", "sql": "SELECT id, price FROM orders ORDER BY id"}
    state |= stages.execute(state)
    assert finished(state)
    assert outcome_text(state) == "It gave 4 rows, the first of them:\nid | price\n1 | 10.5\n2 | 4.25\n3 | 99.0\n4 | 7.0"
    vine = Scripted("SELECT 2")
    assert stages.repair(state, vine._model("repair")) == {"sql": "SELECT 2"}
    assert outcome_text(state) in vine.calls[0][1]


def test_the_check_wants_rows_and_no_error():
    assert finished({"status": "ok", "row_count": 1})
    assert not finished({"status": "ok", "row_count": 0})
    assert not finished({"status": "error", "row_count": 0})
    assert not finished({"question": "?", "db_id": "shop"})


AWKWARD = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
    "SELECT x, 9e999 AS inf, x'00ff' AS b, CAST(x'ff' AS TEXT) AS t, NULL AS n, printf('%500d', 1) AS long, 2.5 AS r FROM c"
)


def test_the_state_survives_a_checkpoint_and_json(databases):
    state, _ = run(databases, AWKWARD)
    serializer = JsonPlusSerializer()
    assert serializer.loads_typed(serializer.dumps_typed(state)) == state
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert (state["row_count"], state["is_truncated"]) == (10_000, True)
    assert len(state["rows"]) == SHOWN_ROWS
    assert state["rows"][0][:5] == [1, "inf", "<2 bytes>", "\ufffd", None]
    assert len(state["rows"][0][5]) == SHOWN_CHARS + 1
    assert "more than 10000 rows" in outcome_text(state)


@pytest.mark.parametrize(
    "model",
    [
        FakeListChatModel(responses=["```sql\nSELECT 1\n```"]),
        GenericFakeChatModel(messages=iter([AIMessage([{"type": "text", "text": "```sql\nSELECT 1\n```"}])])),
    ],
)
def test_stages_take_any_chat_model(databases, model):
    assert Stages(databases).generate({"question": "?", "db_id": "shop"}, model) == {"sql": "SELECT 1"}


class OneAnswerBackend:
    """A backend whose every model answers the same."""

    is_simulated = True
    is_virtual_time = True

    def __init__(self, answer):
        self.answer = answer

    def chat_model(self, model, call):
        return FakeListChatModel(responses=[self.answer])


@pytest.mark.parametrize(("answer", "n_invocations"), [("SELECT 1", 1), ("SELECT nope", 3)])
def test_the_real_control_runs_the_graph(databases, catalog, answer, n_invocations):
    template = Template((Stage("generate"), Loop((Stage("repair"),), 2))).bind(tuple(catalog))
    control = GraphAdapter(ModelResolver(catalog, {"test": OneAnswerBackend(answer)}), template=template)
    app = make_build(databases)(control).compile()
    mode = "stop" if n_invocations == 1 else "through"
    policy = ForcedPolicy(template, ("m0", "m1", "m0"), mode=mode, clock=VirtualClock())
    state = app.invoke({"question": "?", "db_id": "shop"}, context=control.context(policy=policy))
    assert [(i.stage, i.prefix) for i in policy.invocations] == [
        ("generate", ("m0",)),
        ("repair", ("m0", "m1")),
        ("repair", ("m0", "m1", "m0")),
    ][:n_invocations]
    assert state["sql"] == answer
    assert policy.verdicts[n_invocations] is (answer == "SELECT 1")
