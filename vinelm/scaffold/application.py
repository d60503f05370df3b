"""Facts about an application, without running it: its stages, template, tools, current models, and the keys of its state."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langgraph.channels import BinaryOperatorAggregate
from langgraph.graph import END, START
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph import template_of_graph
from vinelm.adapters.langgraph.build import nodes_of_stages
from vinelm.adapters.langgraph.exits import with_graph_exits
from vinelm.adapters.langgraph.nodes.signature import held_attribute, is_user_code, user_place
from vinelm.adapters.langgraph.path.path_channel import WITHIN
from vinelm.adapters.langgraph.structure.call_counts import repeating_nodes, skipping_nodes
from vinelm.adapters.langgraph.structure.chat_search import HeldStages, chat_nodes, file_of
from vinelm.adapters.langgraph.structure.graph_tools import tools_of
from vinelm.adapters.langgraph.structure.reading import read_template
from vinelm.adapters.langgraph.structure.ways import Choice, Ways, all_ways
from vinelm.adapters.tools.tool_box import schema_of
from vinelm.api import VineLM
from vinelm.backends import simulated_catalog
from vinelm.errors import InputError, WorkflowError
from vinelm.requests.workflow import Request, Workflow
from vinelm.scaffold.interrupts import waiting_nodes
from vinelm.scaffold.model_calls import ModelCall, mentioned_models, model_calls, named_model, sources
from vinelm.scaffold.plain_code import CodeKeys, Fields, called_graphs, code_keys, fields_read
from vinelm.scaffold.request_keys import MESSAGES
from vinelm.scaffold.target import Target, find_target, required_of
from vinelm.template import Template


def tool_schemas(spec: str | None, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of the arguments of each tool that the graph's nodes refer to, keyed by the tool's name; no
    node runs.

    Args:
        spec: Names the graph; see :func:`~vinelm.scaffold.target.find_target`.
        folder: The working folder.

    Raises:
        ConfigError: No graph is named, or several are possible.
        WorkflowError: The graph cannot be imported or built.
    """
    graph = find_target(spec, folder).built(VineLM(simulated_catalog("paper-2")))
    return {name: schema_of(tool) for name, tool in tools_of(graph).items()}


def models_today(
    stages: Collection[str], held: Mapping[str, HeldStages], calls: Sequence[ModelCall]
) -> dict[str, tuple[str, ...]]:
    """Return the models that each stage may run in the current setup, as ``provider:model``, keyed by stage; empty if
    unknown.

    Args:
        stages: The stages.
        held: The stages, models and functions found in each node of the graph, keyed by node.
        calls: The places in the source that create models.
    """
    found: dict[str, dict[str, None]] = {stage: {} for stage in stages}
    unknown: set[str] = set()
    for (name, path), node in _nodes(held):
        stage = path if path in found else name
        models = [*map(model_of, node.chats), *(one for code in node.makers for one in _made_in(code, calls))]
        found.setdefault(stage, {}).update(dict.fromkeys(model for model in models if model is not None))
        if None in models:
            unknown.add(stage)
    return {stage: () if stage in unknown else tuple(models) for stage, models in found.items() if stage in stages}


def model_of(chat: Any) -> str | None:
    """Return a LangChain chat model as ``provider:model``; None if its model or provider is unknown."""
    settings = getattr(chat, "_default_config", None)  # the defaults of init_chat_model's configurable model
    if isinstance(settings, Mapping):
        name = settings.get("model")
        return named_model(name, settings.get("model_provider")) if isinstance(name, str) else None
    if not isinstance(chat, BaseChatModel):  # a client of the openai SDK, where each call names the model
        return None
    facts = chat._get_ls_params()
    name, provider = facts.get("ls_model_name"), facts.get("ls_provider") or ""
    prefix = _PREFIXES.get(provider, provider)
    return f"{prefix}:{name.removeprefix('models/')}" if name and prefix else None


_PREFIXES = {"amazon_bedrock": "bedrock_converse", "azure": ""}
"""How chat models name their providers, with the prefix for ``provider:model``; no prefix if a deployment's name is not a
model's."""


def _nodes(held: Mapping[str, HeldStages], around: str = "") -> Iterator[tuple[tuple[str, str], HeldStages]]:
    """Yield a pair ((stage, path), what was found in its node) for each stage, those of inner graphs included.

    The path is the stage's name, preceded by the names of the nodes that contain its graph.
    """
    for node, found in held.items():
        for stage in found.names | found.on_edges | ({node} if found.makes_some else set()):
            yield (stage, around + stage), found
        for inner in found.inner:
            yield from _nodes(inner.held, f"{around}{node}{WITHIN}")


def _made_in(code: CodeType, calls: Sequence[ModelCall]) -> Iterator[str | None]:
    """Yield, for each place in a function that creates a model, the model's name; None if the source does not name it."""
    lines = [line for _, _, line in code.co_lines() if line is not None]
    for call in calls:
        if call.path == Path(code.co_filename) and lines and code.co_firstlineno <= call.line <= max(lines):
            yield call.model


FEW_TURNS = 3
"""Turns of a loop without a declared bound, until the author declares one."""
_STORES = frozenset({"store", "get_store"})
_JSON_WRITERS = re.compile(r"json\.dumps|model_dump_json")
_Read = tuple[Template | None, str | None]


@dataclass(frozen=True, kw_only=True)
class AppGraph:
    """Facts about an application, from its source and objects.

    Attributes:
        target: Where the graph, or the function, is.
        stages: The application's stages, in the order in which the nodes were added.
        nodes: All nodes of the graph; empty for a function.
        template: The application's stages, branches and loops; None if the graph does not determine them.
        reason: Why there is no template; None if there is one.
        calls: The places in the source that create models without ``vine.around(...)``. VineLM cannot choose a model there
            yet.
        today: The models that each stage may run in the current setup, as ``provider:model``; empty if neither source nor
            objects name them.
        input_keys: Keys of the state that an input may have.
        output_keys: Keys that the final state may have.
        waiting: The code of an answer for each node that waits for a person, keyed by node; see
            :func:`~vinelm.scaffold.interrupts.waiting_nodes`.
        mentioned: Models named by strings in the source; empty if the calls that create models name all of them.
        read: Returns (template, None) for a given number of turns of each unbounded loop, or (None, the reason why there is
            no template).
        context: The class of the nodes' context (``context_schema``); None without one.
        wants_store: Whether nodes use LangGraph's store although the graph is compiled without one (its server adds it).
        repeating: Nodes that may call a model several times in one execution.
        turns: The maximum number of turns of each loop without a bound, if the author has given it.
        structured: The fields of a LangChain agent's structured response (``response_format``); empty without one.
        calls_graphs: Nodes whose code calls another graph, inside of which no checkpoint can be resumed.
        fields: For each key of the input whose value is a dict, an object or a list of objects: the value's fields, as far as
            types and code show them.
        forces_tools: Whether the code forces a model to call a tool, so that an answer may be the arguments of a tool call.
        writes_json: Whether the code writes JSON, so that an answer may be a field of a JSON object.
        required: Keys of the state without which an input is refused; empty for a ``TypedDict``, which refuses nothing.
        wants_messages: Whether the input's messages have to be LangChain's objects: no reducer of the state turns dicts into
            messages, and the state's types say that it holds messages.
    """

    target: Target
    stages: tuple[str, ...]
    nodes: tuple[str, ...]
    template: Template | None
    reason: str | None
    calls: tuple[ModelCall, ...]
    today: Mapping[str, tuple[str, ...]]
    input_keys: tuple[str, ...]
    output_keys: tuple[str, ...]
    waiting: Mapping[str, str | None]
    read: Callable[[int], _Read]
    mentioned: tuple[str, ...] = ()
    context: type | None = None
    wants_store: bool = False
    repeating: tuple[str, ...] = ()
    turns: int | None = None
    structured: tuple[str, ...] = ()
    forces_tools: bool = False
    writes_json: bool = False
    wants_messages: bool = False
    required: tuple[str, ...] = ()
    calls_graphs: tuple[str, ...] = ()
    fields: Mapping[str, Fields] = field(default_factory=dict)

    @property
    def open_loops(self) -> bool:
        """Whether some loop of the template lacks a bound: the graph has none, and the author has given none."""
        return self.template is not None and self.turns is None and self.read(FEW_TURNS) != self.read(FEW_TURNS + 1)

    def with_loops(self, times: int) -> AppGraph:
        """Return a copy in which each loop without a bound has at most ``times`` turns."""
        template, reason = self.read(times)
        return replace(self, template=template, reason=reason, turns=times)

    def running_today(self, model: str) -> AppGraph:
        """Return a copy in which ``model`` (``provider:model``) is the current model of each stage that does not have
        exactly one known model.
        """
        known = {stage: models if len(models) == 1 else (model,) for stage, models in self.today.items()}
        return replace(self, today={**dict.fromkeys(self.stages, (model,)), **known})

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the application uses today, as ``provider:model``, as far as its source and objects name them."""
        named = [call.model for call in self.calls if call.model is not None]
        return tuple(dict.fromkeys([*named, *(model for models in self.today.values() for model in models), *self.mentioned]))


def read_application(spec: str | None, folder: Path) -> AppGraph:
    """Import the application that ``spec`` names, read its graph, and return what is known about it. No node runs and no
    model is called.

    The only function of the application that is called is the one that makes the graph, if ``spec`` names it.

    Args:
        spec: Names the graph or function; see :func:`~vinelm.scaffold.target.find_target`.
        folder: The working folder.

    Raises:
        ConfigError: No graph is named, or several are possible.
        WorkflowError: The graph cannot be imported or built, importing calls a model, or no node of it calls a chat model.
    """
    target = find_target(spec, folder)
    if target.is_code:
        return _of_code(target)
    vine = VineLM(simulated_catalog("paper-2"))
    graph = target.built(vine)
    held = chat_nodes(graph, is_any=True)
    ways = all_ways(graph, nodes_of_stages(graph, vine.adapter.agents, held), held)
    stages = tuple(dict.fromkeys((*ways.stage_of.values(), *vine.adapter.agents)))
    if not stages:
        raise WorkflowError(
            f"{target.spec}: none of its nodes ({', '.join(graph.builder.nodes)}) calls a LangChain chat model, so there is no "
            "model to choose: let an LLM node call one, such as ChatOpenAI, or vine.chat_model()"
        )
    places = () if target.kind in ("model-maker", "vine-maker") else tuple(model_calls(target.module, target.root))
    making = [node for node, found in held.items() if found.is_one_stage(node)]
    calling = [node for node, found in held.items() if found.names or found.makes_some]
    repeating = repeating_nodes(graph, (node for node in calling if node not in making))
    skipping = skipping_nodes(graph, (node for node in calling if node not in making))
    read = partial(_template, graph, vine, held, repeating=repeating, skipping=skipping)
    template, reason = read(FEW_TURNS)
    mentioned = _mentioned(target, places)
    return AppGraph(
        target=target,
        stages=stages,
        nodes=tuple(graph.builder.nodes),
        template=template,
        reason=reason,
        calls=_unwrapped(places),
        today=_with_the_only_one(models_today(stages, held, places), mentioned),
        input_keys=_keys(graph, graph.builder.input_schema),
        output_keys=_keys(graph, graph.builder.output_schema),
        waiting=waiting_nodes(graph),
        read=read,
        mentioned=mentioned,
        context=graph.context_schema if isinstance(graph.context_schema, type) else None,
        repeating=tuple(repeating),
        structured=_structured(graph),
        calls_graphs=tuple(dict.fromkeys([*_calling_graphs(graph), *making])),
        fields=_fields(graph, held),
        forces_tools=any("tool_choice" in text for text in sources(target.module, target.root)),
        writes_json=any(_JSON_WRITERS.search(text) for text in sources(target.module, target.root)),
        wants_messages=_wants_messages(graph),
        required=_required(graph),
        wants_store=graph.store is None and any(_STORES & set(code.co_names + code.co_varnames) for code in _codes(graph)),
    )


def _mentioned(target: Target, calls: Sequence[ModelCall]) -> tuple[str, ...]:
    """Return the models whose names occur in strings of the application's source.

    Return an empty tuple if every call that creates a chat model states the model's name or a server.
    """
    is_said = all(call.model is not None or call.endpoint is not None for call in calls)
    return () if is_said else mentioned_models(target.module, target.root)


def _with_the_only_one(today: Mapping[str, tuple[str, ...]], mentioned: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return each stage's current models. If the application names only one model, that model is used for stages without a
    known model.

    `vinelm check` compares this guess with the name that the stage's own model reports when it is called.
    """
    named = {*mentioned, *(model for models in today.values() for model in models)}
    return {stage: models or tuple(named) for stage, models in today.items()} if len(named) == 1 else today


def _unwrapped(places: Sequence[ModelCall]) -> tuple[ModelCall, ...]:
    return tuple(call for call in places if not call.is_wrapped)


def _of_code(target: Target) -> AppGraph:
    """Return the facts about an application that is a function without a graph.

    Each place where the function's module creates a model counts as a stage.
    """
    calls = tuple(model_calls(target.module, target.root))
    if not calls:
        raise WorkflowError(
            f"{target.spec} is a function without a graph, and {target.module.__name__} makes no LangChain chat model: let it "
            "call vine.chat_model(...) and write its workflow file by hand (docs/frameworks.md#plain-python-no-framework)"
        )
    stages = tuple(dict.fromkeys(call.name for call in calls))
    first: Choice = dict.fromkeys(stages, frozenset())
    ways = Ways(
        {stage: stage for stage in stages}, {START: [first]} | {stage: [{**first, END: frozenset()}] for stage in stages}
    )
    today = {name: tuple(dict.fromkeys(c.model for c in calls if c.name == name and c.model)) for name in stages}
    keys: CodeKeys = code_keys(target.value)
    mentioned = _mentioned(target, calls)

    def read(turns: int) -> _Read:
        return read_template(ways, "code", turns=turns), None

    return AppGraph(
        target=target,
        stages=stages,
        nodes=(),
        template=read(FEW_TURNS)[0],
        reason=None,
        calls=_unwrapped(calls),
        today=_with_the_only_one(today, mentioned),
        input_keys=keys.inputs,
        output_keys=keys.outputs,
        waiting={},
        read=read,
        mentioned=mentioned,
    )


def _template(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    vine: VineLM,
    held: Mapping[str, HeldStages],
    turns: int,
    *,
    repeating: Mapping[str, bool],
    skipping: Collection[str],
) -> _Read:
    """Return (template, None) if the graph determines its template, otherwise (None, the reason).

    Args:
        graph: The graph.
        vine: The object that wraps the graph's stages.
        held: The stages, models and functions found in each node, keyed by node.
        turns: The number of turns of each loop without a bound.
        repeating: Nodes that may call a model several times in one execution.
        skipping: Nodes that may end without calling a model.
    """
    unread = Workflow(name="app", build=lambda _: graph, requests=(Request("none", {}),), score=lambda *_: False)
    try:
        found = template_of_graph(unread, graph, vine.adapter.agents, held, turns=turns, repeating=repeating, skipping=skipping)
        return with_graph_exits(found, graph), None
    except InputError as error:
        return None, str(error).removeprefix("workflow 'app': ")
    except Exception as error:  # the application may build anything
        place = user_place(error)
        return None, f"{type(error).__name__}: {error}" + (f" at {place}" if place else "")


def _calling_graphs(graph: CompiledStateGraph[Any, Any, Any, Any]) -> tuple[str, ...]:
    """Return the names of the nodes whose function refers to a compiled graph, which it may call."""
    return tuple(node for node, spec in graph.builder.nodes.items() if any(called_graphs(spec.runnable)))


def _fields(graph: CompiledStateGraph[Any, Any, Any, Any], held: Mapping[str, HeldStages]) -> dict[str, Fields]:
    """Return the fields of input values that are dicts, objects of the application or lists of these objects.

    The result is keyed by the input key; input keys with other values are left out.
    """
    hints = _hints(graph)
    runnables = [spec.runnable for spec in graph.builder.nodes.values()]
    own = [one for runnable in runnables for name in ("func", "afunc") if callable(one := held_attribute(runnable, name))]
    plain = (inspect.unwrap(one) for one in (*own, *(one for found in held.values() for one in found.functions)))
    functions = list(dict.fromkeys(getattr(one, "__func__", one) for one in plain if inspect.isroutine(one)))
    found: dict[str, Fields] = {}
    for key in _keys(graph, graph.builder.input_schema):
        kind = hints.get(key)
        is_list = get_origin(kind) in {list, Sequence, tuple}
        inner = get_args(kind)[0] if is_list and get_args(kind) else kind
        if isinstance(inner, type) and issubclass(inner, BaseMessage):
            continue
        if inner is dict or get_origin(inner) in {dict, Mapping} or (inner is None and not hints):
            read = fields_read(functions, key)
            found |= {key: read} if read.names and not is_list else {}
        elif isinstance(inner, type) and is_user_code(inner.__module__, file_of(inner)) and not issubclass(inner, Enum):
            names = tuple(getattr(inner, "model_fields", None) or getattr(inner, "__annotations__", {}))
            found |= {key: Fields(names=names, needed=tuple(required_of(inner)), is_list=is_list)} if names else {}
    return found


def _hints(graph: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, Any]:
    """Return the types of the input's keys, without the extras of ``Annotated``; empty if a type cannot be found."""
    try:
        return get_type_hints(graph.builder.input_schema)
    except (NameError, TypeError, AttributeError):  # names that are only imported for type checkers
        return {}


def _required(graph: CompiledStateGraph[Any, Any, Any, Any]) -> tuple[str, ...]:
    schema = graph.builder.input_schema
    known = set(_keys(graph, schema))
    return () if is_typeddict(schema) else tuple(key for key in required_of(schema) if key in known)


def _wants_messages(graph: CompiledStateGraph[Any, Any, Any, Any]) -> bool:
    channel = graph.builder.channels.get(MESSAGES)
    if isinstance(channel, BinaryOperatorAggregate) and channel.operator is add_messages:
        return False
    inner = get_args(_hints(graph).get(MESSAGES)) or (None,)
    return "Message" in str(inner[0])


def _structured(graph: CompiledStateGraph[Any, Any, Any, Any]) -> tuple[str, ...]:
    """Return the names of the fields of an agent's ``response_format``; empty if it has none."""
    for spec in graph.builder.nodes.values():
        function = held_attribute(spec.runnable, "func")
        if not inspect.isfunction(function):
            continue
        asked = inspect.getclosurevars(function).nonlocals.get("initial_response_format")
        schema = getattr(asked, "schema", None)
        if isinstance(schema, Mapping):
            return tuple(schema.get("properties", ()))
        if schema is not None:
            named: Mapping[str, Any] = getattr(schema, "model_fields", None) or getattr(schema, "__annotations__", {})
            return tuple(named)
    return ()


def _codes(graph: CompiledStateGraph[Any, Any, Any, Any]) -> Iterator[CodeType]:
    """Yield the code objects of the functions of a graph's nodes."""
    for spec in graph.builder.nodes.values():
        functions = (held_attribute(spec.runnable, name) for name in ("func", "afunc"))
        yield from (one.__code__ for one in functions if hasattr(one, "__code__"))


def _keys(graph: CompiledStateGraph[Any, Any, Any, Any], schema: Any) -> tuple[str, ...]:
    """Return the keys of one of the graph's schemas, without the keys of VineLM and LangGraph, which begin with
    underscores.
    """
    channels = graph.builder.schemas.get(schema, {})
    return tuple(key for key in channels if not key.startswith("_"))
