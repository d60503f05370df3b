"""What the conformance tests share: a scripted backend, five kinds of state, one application in each of them."""

import asyncio
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from kit.catalogs import make_catalog
from kit.templates import make_template
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.backends.resolver import ModelResolver
from vinelm.clock import VirtualClock, WallClock
from vinelm.policies import ForcedPolicy
from vinelm.rows.observation import Usage

TOKENS = ("one ", "two ", "three")


class Echo(BaseChatModel):
    """Answers with its catalog name, in tokens where it streams; a virtual second and 0.01 dollars a call."""

    name_: str
    call: Any
    fail: Any = None

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _spend(self) -> None:
        if not isinstance(self.call.clock, WallClock):
            self.call.clock.sleep(1.0)
        self.call.on_usage(Usage(model=self.name_, cost_usd=0.01, latency_s=1.0))
        if self.fail is not None:
            raise self.fail

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self._spend()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.name_))])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        await asyncio.sleep(0)
        return self._generate(messages)

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        self._spend()
        for token in TOKENS:
            yield ChatGenerationChunk(message=AIMessageChunk(content=token))


class EchoBackend:
    """``fail`` maps a model to the exception that its calls raise; ``calls`` keeps every CallContext."""

    is_simulated = True
    is_virtual_time = True

    def __init__(self, fail=None):
        self.fail = fail or {}
        self.calls = []

    def chat_model(self, model, call):
        self.calls.append(call)
        return Echo(name_=model.name, call=call, fail=self.fail.get(model.name))


class Typed(TypedDict, total=False):
    q: str
    a: str
    log: Annotated[list, operator.add]


@dataclass
class Plain:
    q: str = ""
    a: str = ""
    log: Annotated[list, operator.add] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    q: str = ""
    a: str = ""
    log: Annotated[list, operator.add] = field(default_factory=list)


class Model(BaseModel):
    q: str = ""
    a: str = ""
    log: Annotated[list, operator.add] = []


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    q: str = ""
    a: str = ""
    log: Annotated[list, operator.add] = []


KINDS = {cls.__name__: cls for cls in (Typed, Plain, Frozen, Model, Strict)}
MODES = ("sync", "async")


def get(state, name, default=""):
    return state.get(name, default) if isinstance(state, dict) else getattr(state, name)


@dataclass
class App:
    """generate -> execute -> (repair -> execute)*, finished once it has ``turns`` answers.

    ``inside(stage, state, model)`` runs in every stage after its model call; ``tool(state)`` in execute. ``seen`` keeps the
    states that user code got.
    """

    schema: Any = Typed
    mode: str = "sync"
    turns: int = 3
    wrapped: bool = True
    retry: Any = None
    inside: Any = None
    tool: Any = None
    seen: list = field(default_factory=list)

    def build(self, vine):
        schema, seen = self.schema, self.seen

        def note(stage, state, model, text):
            seen.append(state)
            if self.inside:
                self.inside(stage, state, model)
            before = "" if stage == "generate" else get(state, "a")
            return {"a": f"{before}{text};", "log": [stage]}

        def stage(name):
            def run(state, model):
                return note(name, state, model, model.invoke("?").content)

            async def arun(state, model):
                return note(name, state, model, (await model.ainvoke("?")).content)

            return vine.stage(name, run if self.mode == "sync" else arun, state=schema)

        def execute(state: schema):
            if self.tool:
                self.tool(state)
            return {"log": ["execute"]}

        def finished(state: schema) -> bool:
            seen.append(state)
            return get(state, "a").count(";") >= self.turns

        def edge(state: schema):
            return END if finished(state) else "repair"

        graph = StateGraph(schema)
        graph.add_node("generate", stage("generate"), retry_policy=self.retry)
        graph.add_node("execute", execute)
        graph.add_node("repair", stage("repair"), retry_policy=self.retry)
        graph.add_edge(START, "generate")
        graph.add_edge("generate", "execute")
        graph.add_edge("repair", "execute")
        route = vine.route(finished, again="repair", end=END) if self.wrapped else edge
        graph.add_conditional_edges("execute", route)
        return graph


def control(backend=None, *, n_models=3, depth=3, template=True) -> GraphAdapter:
    models = ModelResolver(make_catalog(n_models), {"test": backend or EchoBackend()})
    return GraphAdapter(models, template=make_template(n_models, depth) if template else None)


def run(app, mode, value, config=None, **kwargs):
    if mode == "async":
        return asyncio.run(app.ainvoke(value, config, **kwargs))
    return app.invoke(value, config, **kwargs)


def thread(name="t"):
    return {"configurable": {"thread_id": name}}


def path_of(app, config):
    """Models of the stored path."""
    value = app.get_state(config).values.get(PATH_KEY)
    return [entry["model"] for entry in value["path"]] if value else []


def forced(vine, models, **kwargs):
    """A forced policy on a clock of its own."""
    return ForcedPolicy(vine.template, models, clock=VirtualClock(), **kwargs)
