"""Digests of everything that determines an answer, apart from request and models: graph, node code, prompts, resources.

Results of a changed workflow must not be mixed with old results. Each part has a separate digest, so that an error can name the
changed part. Code is digested as its syntax tree, without comments, docstrings and layout; the digest is the same under every
version of Python. It also covers the constants and functions of the same package that the code uses. Anything that code reads
in other ways (files, environment, other packages) belongs in ``Workflow.resources``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from vinelm.adapters.langchain.chat_model import VineInterface
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.langgraph.build import built_by
from vinelm.adapters.langgraph.nodes.finish import FINISH_MARK
from vinelm.adapters.langgraph.nodes.signature import closure_values, held_attribute
from vinelm.adapters.langgraph.structure.chat_search import code_names, holds_stage
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog
from vinelm.foreign_code import answered
from vinelm.judging import AsToday, LLMJudge
from vinelm.judging.judgement import JUDGED
from vinelm.profiler.execution.syntax import tree_of
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Workflow
from vinelm.traces import StoreIdentity

SETTING = "setting "
"""Prefix of the fingerprint parts that come from the ``settings`` of :func:`store_identity`."""


def store_identity(
    workflow: Workflow,
    catalog: Catalog,
    backends: Mapping[str, Backend],
    *,
    settings: Mapping[str, Any] | None = None,
) -> StoreIdentity:
    """Return the identity (workflow, models, settings) of a store for this profile. Builds the graph without running it.

    Args:
        workflow: the workflow.
        catalog: the models.
        backends: a backend for each provider of the catalog.
        settings: other settings that determine answers, such as the seed of simulated models; plain JSON.
    """
    parts = fingerprint(workflow, catalog, backends)
    parts |= {f"{SETTING}{name}": json.dumps(value) for name, value in (settings or {}).items()}

    return StoreIdentity(
        workflow=workflow.name,
        template=workflow.template.bind(tuple(catalog)).to_dict(),
        catalog=_portable(catalog.to_dict()),
        dataset_digest=workflow.dataset_digest,
        fingerprint=parts,
        is_simulated=any(backend.is_simulated for backend in backends.values()),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _portable(catalog: dict[str, Any]) -> dict[str, Any]:
    """Return the catalog with each file path in its backends' options replaced by a digest of the file, since files move."""
    for settings in catalog["backend"].values():
        table = settings.get("table")
        if isinstance(table, str) and Path(table).is_file():
            with Path(table).open("rb") as file:
                settings["table"] = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return catalog


def fingerprint(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> dict[str, str]:
    """Return a digest of each part of the workflow, by the part's name.

    The names are ``graph``, ``stage NAME``, ``node NAME`` (for tools), ``route N`` (the routes, numbered), ``scorer`` and
    ``resource LABEL``. The names ``inputs``, ``interrupts``, ``context`` and ``configurable`` are present if the workflow
    declares such a function.
    """
    recorder = _Recorder(GraphAdapter(ModelResolver(catalog, backends), template=workflow.template))
    graph = built_by(workflow, recorder)
    builder = getattr(graph, "builder", graph)  # compiled or not
    is_graph = hasattr(builder, "nodes") and hasattr(builder, "branches")
    parts = {"graph": _digest(_shape(builder) if is_graph else list(_functions_of(graph)))}
    parts |= {f"stage {name}": code_digest(fn) for name, fn in recorder.functions.items()}
    parts |= {f"route {i}": code_digest(fn) for i, fn in enumerate(recorder.routes, start=1)}
    for name, node in builder.nodes.items() if is_graph else ():
        function = _function(node)
        if _is_finish(node):
            continue
        if name not in recorder.functions and function is not None:
            parts[f"node {name}"] = code_digest(function)
        elif name not in recorder.functions and holds_stage(node.runnable):
            parts[f"node {name}"] = _digest(list(_Code().chain(node.runnable, type(node.runnable).__module__)))
    # A judge's prompt may change: its rows stay and are judged again (profiler/scheduling/kept_rows.py).
    parts["scorer"] = JUDGED if isinstance(workflow.score, LLMJudge) else _scorer_digest(workflow.score)
    if workflow.inputs is not None:
        parts["inputs"] = code_digest(workflow.inputs)
    if workflow.answer_interrupt is not None:
        parts["interrupts"] = code_digest(workflow.answer_interrupt)
    if workflow.context is not None:
        parts["context"] = code_digest(workflow.context)
    if workflow.configurable is not None:
        parts["configurable"] = code_digest(workflow.configurable)
    return parts | {f"resource {label}": digest for label, digest in workflow.resources.items()}


def _scorer_digest(score: Callable[..., Any]) -> str:
    """Return a digest of the code that scores an answer.

    If answers are compared with the current setup's answer (:class:`AsToday`), digest the label names and the code that
    extracts and scores an answer.
    """
    if not isinstance(score, AsToday):
        return code_digest(score)
    return _digest([*score.labels, *(None if one is None else code_digest(one) for one in (score.answer, score.score))])


def code_digest(target: Callable[..., Any]) -> str:
    """Return the digest of a callable and of the constants and functions of its package that it uses."""
    return _digest(list(_Code().of(target, _package(target))))


def _functions_of(app: Any) -> Iterator[str]:
    """Yield the code digest of each function of an application.

    If the application is itself a function, yield its digest. If it is an entrypoint of LangGraph's functional API, yield the
    digest of the function of each of its nodes.
    """
    for node in getattr(app, "nodes", {}).values():
        bound = getattr(node, "bound", None)
        function = held_attribute(bound, "func") or held_attribute(bound, "afunc")
        if function is not None:
            yield code_digest(function)
    if not hasattr(app, "nodes"):
        yield code_digest(app)


class _Recorder(VineInterface):
    """A ``vine`` object that records the application's functions before the adapter wraps them."""

    def __init__(self, adapter: GraphAdapter) -> None:
        self.adapter = adapter
        self.functions: dict[str, Callable[..., Any]] = {}
        self.routes: list[Callable[..., Any]] = []

    def stage(self, name: str, fn: Callable[..., Any] | None = None, **settings: Any) -> Any:
        """Record the function of a stage, then wrap it; see :meth:`VineInterface.stage`."""
        if fn is not None:
            self.functions[name] = fn
        return super().stage(name, fn, **settings)

    def route(self, fn: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        """Record the function of a route, then wrap it; see :meth:`VineInterface.route`."""
        self.routes.append(fn)
        return super().route(fn, **settings)


def _shape(builder: Any) -> Any:
    """Return [nodes, edges, edges that wait for several nodes, conditional edges] of a ``StateGraph`` in a fixed order.

    A node that runs ``vine.finish`` is left out; the edges to it lead to its destination instead.
    """
    leads_to = {source: target for source, target in builder.edges if _is_finish(builder.nodes.get(source))}

    def at(name: Any) -> Any:
        return leads_to.get(name, name)

    branches = {
        source: {name: sorted((at(key), at(end)) for key, end in (branch.ends or {}).items()) for name, branch in found.items()}
        for source, found in builder.branches.items()
    }
    edges = sorted((source, at(target)) for source, target in builder.edges if source not in leads_to)
    return [sorted(set(builder.nodes) - set(leads_to)), edges, sorted(map(str, builder.waiting_edges)), branches]


def _is_finish(node: Any) -> bool:
    """Return whether ``node`` runs ``vine.finish``, which may make a request return an earlier answer.

    In a profile, ``vine.finish`` has no effect.
    """
    return bool(getattr(_function(node), FINISH_MARK, False))


def _function(node: Any) -> Any:
    runnable = getattr(node, "runnable", None)
    return held_attribute(runnable, "func") or held_attribute(runnable, "afunc")


class _Code:
    """Collects everything that a digest of code covers: the code's syntax tree, and the constants and code that it refers to.

    Only code of the same package is followed. Each object is collected at most once, even if several places refer to it.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def of(self, target: Any, package: str) -> Iterator[Any]:
        """Yield a callable's syntax tree (its bytecode if there is no source), then the constants and code that it refers to.

        ``package`` is the package whose code is followed; other code is left out.
        """
        if id(target) in self._seen:
            return
        self._seen[id(target)] = target
        if isinstance(target, MethodType):
            yield from self.of(target.__func__, package)
        elif isinstance(target, FunctionType):
            yield tree_of(target) or _bytecode(target.__code__)
            yield from self.values([*(target.__defaults__ or ()), *(target.__kwdefaults__ or {}).values()], package)
            names = sorted(set(code_names(target.__code__)))
            yield from self.values([target.__globals__[name] for name in names if name in target.__globals__], package)
            yield from self.values(list(closure_values(target)), package)
            owner = target.__globals__
            for name in names:  # constants and functions reached by a module's name: prompts.GENERATE
                for module in (value for value in (owner.get(n) for n in names) if _is_local_module(value, package)):
                    if hasattr(module, name):
                        yield from self.values([getattr(module, name)], package)
        elif isinstance(target, type):
            if _belongs(target, package):
                yield from self._class(target, package)
        elif hasattr(target, "__wrapped__"):
            yield from self.of(target.__wrapped__, package)
        elif callable(target):
            yield from self.of(type(target), package)

    def _class(self, target: type, package: str) -> Iterator[Any]:
        members = [(k, v) for k, v in sorted(vars(target).items()) if not k.startswith("__") or isinstance(v, FunctionType)]
        tree = tree_of(target)
        yield tree
        # Code that Python generates for a class (a dataclass's methods, an enumeration's tables) differs between versions.
        is_made = set(target.__members__) if issubclass(target, Enum) else set()
        members = [
            (name, value)
            for name, value in members
            if name not in is_made
            and not (issubclass(target, Enum) and name.startswith("_") and not isinstance(value, FunctionType))
            and not (tree is not None and isinstance(value, FunctionType) and tree_of(value) is None)
        ]
        yield from self.values([value for _, value in members], package)

    def values(self, values: list[Any], package: str) -> Iterator[Any]:
        """Yield the constants among ``values``. For functions and classes of ``package``, yield their code instead.

        The code is yielded as by :meth:`of`.
        """
        for value in values:
            plain = _plain(value)
            if plain is not None:
                yield plain
                if isinstance(value, Runnable) and not isinstance(value, BaseChatModel) and holds_stage(value):
                    yield from self.chain(value, package)
            elif isinstance(value, (classmethod, staticmethod)):
                yield from self.values([value.__func__], package)
            elif isinstance(value, property):
                yield from self.values([value.fget], package)
            elif isinstance(value, (FunctionType, MethodType, type)) and _belongs(value, package):
                yield from self.of(value, package)

    def chain(self, target: Any, package: str) -> Iterator[Any]:
        """Yield the class names, prompts, settings and functions of a LangChain chain (``target``) that calls a stage.

        They are read from the chain's objects, because LangChain's own JSON of a chain has only the class names.
        """
        if isinstance(target, (str, int, float, bool, type(None))):
            yield target
            return
        if id(target) in self._seen:
            return
        self._seen[id(target)] = target
        if isinstance(target, (list, tuple)):
            for item in target:
                yield from self.chain(item, package)
        elif isinstance(target, Mapping):
            yield from self.chain([*target, *target.values()], package)
        elif isinstance(target, (FunctionType, MethodType)):
            yield from self.of(target, _package(target))
        elif isinstance(target, (Runnable, BaseModel)) and not isinstance(target, BaseChatModel):
            yield type(target).__name__
            yield from self.chain({name: value for name, value in vars(target).items() if name[0] != "_"}, package)
        elif isinstance(target, BaseModel):
            yield _plain(target)
        else:
            yield type(target).__name__


def _plain(value: Any) -> str | None:
    """Return JSON text of a constant or pydantic object (such as LangChain's prompt templates); None for anything else."""

    def text() -> str | None:
        if isinstance(value, BaseModel):
            return json.dumps(value.model_dump(), sort_keys=True, default=lambda inner: type(inner).__name__)
        return json.dumps(value, sort_keys=True) if isinstance(value, (str, int, float, bool, list, tuple, dict)) else None

    return answered(text, None)  # not a constant: sets, objects, models that cannot be dumped


def _bytecode(code: CodeType) -> str:
    inner = [_bytecode(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts]
    return _digest([code.co_code.hex(), code.co_names, code.co_varnames, inner])


def _package(target: Any) -> str:
    """Return the name of the package in which the object is defined; for a top-level module, the module's name.

    The code of this package belongs to the workflow.
    """
    module = getattr(target, "__module__", None) or type(target).__module__
    return str(module.rpartition(".")[0] or module)


def _belongs(target: Any, package: str) -> bool:
    module = str(getattr(target, "__module__", ""))
    return module == package or module.startswith(f"{package}.")


def _is_local_module(value: Any, package: str) -> bool:
    return isinstance(value, ModuleType) and (value.__name__ == package or value.__name__.startswith(f"{package}."))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:32]
