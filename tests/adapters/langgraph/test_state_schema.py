"""Every kind of state, sync and async: user code sees exactly its own type, results and schemas stay as they were."""

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

import pytest
from kit.apps.echo import KINDS, MODES, App, Plain, control, forced, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, PrivateAttr, field_validator
from typing_extensions import TypedDict

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.adapters.langgraph.path.state_schema import announced, own_state
from vinelm.errors import WorkflowError

PATH = ["m2", "m0", "m1"]


def is_exactly(state, schema):
    return type(state) is (dict if schema.__name__ == "Typed" else schema)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_a_run_follows_its_policy_and_leaves_the_application_as_it_was(schema, mode):
    vine = control()
    app = App(schema, mode)
    graph = app.build(vine).compile(checkpointer=InMemorySaver())
    policy = forced(vine, PATH)
    result = run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))
    assert result == {"q": "?", "a": "m2;m0;m1;", "log": ["generate", "execute", "repair", "execute", "repair", "execute"]}
    assert path_of(graph, thread()) == PATH
    assert [i.prefix for i in policy.invocations] == [tuple(PATH[:1]), tuple(PATH[:2]), tuple(PATH)]
    assert [i.latency_s for i in policy.invocations] == [1.0, 1.0, 1.0]
    assert [i.cost_usd for i in policy.invocations] == [0.01] * 3
    for state in app.seen:
        assert is_exactly(state, schema)
        assert PATH_KEY not in (state if isinstance(state, dict) else vars(state) if hasattr(state, "__dict__") else ())


@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_the_channel_is_in_no_schema(schema):
    graph = App(schema).build(control()).compile()
    for json_schema in (graph.get_input_jsonschema(), graph.get_output_jsonschema()):
        assert PATH_KEY not in json_schema["properties"]
        assert "q" in json_schema["properties"]


def test_a_dataclass_is_initialised_once():
    made = []

    @dataclass
    class State:
        q: str = ""
        n: int = 0
        twice: int = field(init=False, default=0)

        def __post_init__(self):
            made.append(self.n)
            self.twice = 2 * self.n

    vine = control()
    seen = []

    def generate(state: State, model: Any):
        seen.append(state)
        return {"q": "x"}

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_edge(START, "generate")
    graph.add_edge("generate", END)
    graph.compile().invoke({"n": 4})
    assert made == [4]
    assert seen == [seen[0]]
    assert type(seen[0]) is State
    assert (seen[0].n, seen[0].twice) == (4, 8)


def test_a_pydantic_state_keeps_what_its_validators_made():
    ran = []

    class State(BaseModel):
        q: str = ""
        n: int = 0
        _note: str = PrivateAttr("made")

        @field_validator("n")
        @classmethod
        def shift(cls, n):
            ran.append(n)
            return n + 1

    carrier = announced(State)(n=1, **{PATH_KEY: {"path": [], "closed": False}})
    own, value = own_state(carrier)
    assert type(own) is State
    assert (own.n, own.model_fields_set, own._note, ran) == (2, {"n"}, "made", [1])
    assert own == State.model_construct(n=2, _fields_set={"n"})
    assert value == {"path": [], "closed": False}
    assert own.model_dump() == carrier.model_dump() == {"q": "", "n": 2}


def test_a_typed_dict_keeps_its_channels_and_requirements():
    class Base(TypedDict):
        q: str

    class State(Base, total=False):
        log: Annotated[list, operator.add]
        extra: NotRequired[int]

    graph = StateGraph(State)
    vine = control()
    graph.add_node("generate", vine.stage("generate", lambda state, model: {"log": [1]}, state=State))
    graph.add_edge(START, "generate")
    assert graph.compile().invoke({"q": "?", "log": [0]}) == {"q": "?", "log": [0, 1]}


def test_a_state_that_carries_no_path_is_handed_on_as_it_is():
    for state in ({"q": 1}, Plain("x"), "a Send's argument", None):
        own, value = own_state(state)
        assert own is state
        assert value is None


def test_the_given_state_is_not_changed():
    """LangGraph hands the same object to a retry."""
    state = {"q": 1, PATH_KEY: {"path": [], "closed": False}}
    own_state(state)
    assert PATH_KEY in state


@pytest.mark.parametrize("schema", [int, list, dict, object])
def test_other_state_types_are_refused(schema):
    with pytest.raises(WorkflowError, match="use a TypedDict, a dataclass or a pydantic model"):
        announced(schema)
