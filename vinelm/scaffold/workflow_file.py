"""Writes the text of a workflow file, which declares the application's graph, its template, its requests and its scorer."""

from __future__ import annotations

import ast
import inspect
import json
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from vinelm.adapters.langgraph.structure.code import template_code, template_imports
from vinelm.scaffold.application import FEW_TURNS, AppGraph
from vinelm.scaffold.plain_code import ANSWER, code_keys, fields_returned, function_of
from vinelm.scaffold.request_keys import MESSAGES, STRUCTURED, RequestKeys
from vinelm.scaffold.target import required_of
from vinelm.template.steps import mapped

TODO = "TODO"
DEFAULT_DATASET = "requests.jsonl"
_OWN_NAMES = frozenset(
    {"build", "workflow", "score", "inputs", "requests", "template", "answer_of", "run_once", "vine", "answer", "label"}
    | {"Path", "HumanMessage", "InMemoryStore", "asyncio", "import_module", "json", "sys", "Workflow", "Template", "TextWriter"}
    | {"read_dataset", "as_today"}
    | {"Stage", "Loop", "Branch", "Parallel"}
)
"""Names that the workflow file defines or imports: no name of the application may hide one of them."""
_EQUAL = "    # Equal texts. Write your own rule where answers may differ in form; a number in [0, 1] is a partial score."


def with_defaults(text: str, today: Mapping[str, str]) -> str:
    """Return the text of a workflow file with each stage's current model added as ``default=``, unless the stage has a
    default.

    Args:
        text: The text of the workflow file.
        today: The catalog name of the current model, keyed by stage.
    """
    for stage, model in today.items():
        bare = rf"Stage\({re.escape(json.dumps(stage))}(?=[,)])(?![^)]*default=)"
        text = re.sub(bare, lambda one, model=model: f"{one[0]}, default={json.dumps(model)}", text)  # type: ignore[misc]
    return re.sub(rf"^# {TODO}: which model runs today at .*\n", "", text, flags=re.MULTILINE)


def with_answer(text: str, code: str) -> str:
    """Return the text of a workflow file whose ``answer_of`` reads the answer with this Python code.

    The text stays as it is if nothing in the function is marked as still to do: then its author has decided.
    """
    lines = text.split("\n")
    for one in ast.parse(text).body:
        if isinstance(one, ast.FunctionDef) and one.name == "answer_of":
            inside = lines[one.lineno : one.end_lineno]
            if any(f"# {TODO}: " in line for line in inside):
                lines[one.lineno : one.end_lineno] = [
                    "    # Found in a run on a scripted model, which wrote nothing but the label.",
                    "    try:",
                    f"        return str({code}).strip()",
                    "    except (AttributeError, IndexError, KeyError, TypeError):  # a model's answer may lack it",
                    '        return ""',
                ]
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class WorkflowFile:
    """The facts that a workflow file is written from.

    Attributes:
        name: The workflow's name, in stores and reports.
        spec: The workflow's name as commands take it, ``MODULE:workflow``.
        keys: How the fields of requests map to keys of the graph's state.
        dataset: The path of the dataset, relative to the workflow file; None if it does not exist yet, so that a
            placeholder is written.
        imports_from: The folder of the application, relative to the workflow file; None if both are in the same folder.
        is_simulated: Whether simulated models write the answers.
        is_edited: Whether the application's models are already wrapped in ``vine.around(...)``.
        defaults: The catalog name of each stage's current model, keyed by stage.
        asked: Stages whose current model is unknown, each with its possible models, such as ``write (gpt-4o or
            gpt-4o-mini)``.
    """

    name: str
    spec: str
    application: AppGraph
    keys: RequestKeys
    dataset: Path | None
    imports_from: Path | None
    is_simulated: bool
    is_edited: bool
    defaults: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the text of the workflow file. Undecided parts are marked with ``TODO``."""
        parts = (self._head(), self._template(), self._build(), self._scorer(), self._workflow())
        return "\n\n".join("\n".join(part) for part in map(list, parts) if part) + "\n"

    def _head(self) -> Iterator[str]:
        target, app = self.application.target, self.application
        yield f'"""{self.name}, ready for VineLM: `vinelm check {self.spec} --models models.toml`."""'
        yield ""
        if inspect.iscoroutinefunction(target.value) and not target.is_code:
            yield "import asyncio"
        if self._is_json or self._reads_json:
            yield "import json"
        if self.imports_from is not None:
            yield "import sys"
        if not _is_importable(target.module.__name__):
            yield "from importlib import import_module"
        yield "from pathlib import Path"
        yield ""
        if self._makes_messages:
            yield "from langchain_core.messages import HumanMessage"
        if app.wants_store:
            yield "from langgraph.store.memory import InMemoryStore"
        names = {"Workflow", "read_dataset"} | ({"TextWriter"} if self._has_writer else set())
        names |= {"as_today"} if self.keys.unlabelled else set()
        if app.template is not None:
            *ends, ours = template_imports(app.template).split("\n")
            yield from ends
            names |= set(ours.removeprefix("from vinelm import ").split(", "))
        ours_line = f"from vinelm import {', '.join(sorted(names))}"
        asked = {self._filling: self._filling} if self._filling else {}
        theirs = _imports(target.module.__name__, {**asked, target.attribute: _own(target.attribute)})
        if app.context is not None:
            theirs += _imports(app.context.__module__, {app.context.__name__: _context_name(app.context)})
        imported = [line for line in theirs if line.startswith("from ")]
        if self.imports_from is None:
            yield from sorted([ours_line, *imported])
        else:
            yield ours_line
            yield ""
            place = self.imports_from.as_posix()
            yield f'sys.path.insert(0, str(Path(__file__).resolve().parent / "{place}"))'
            yield from (f"{line}  # noqa: E402" for line in imported)
        if looked_up := [line for line in theirs if line not in imported]:
            yield ""
            yield from looked_up

    @property
    def _graph(self) -> str:
        target = self.application.target
        return _own(target.attribute) + target.rest

    @property
    def _makes_messages(self) -> bool:
        """Return whether ``inputs`` makes LangChain's messages."""
        return self.application.wants_messages and not self.keys.fields and MESSAGES in dict(self.keys.inputs)

    @property
    def _has_writer(self) -> bool:
        return self.is_simulated and self.keys.label is not None

    def _build(self) -> Iterator[str]:
        app = self.application
        if app.calls and not self.is_edited:
            yield ""
            yield "# VineLM chooses only where it is around a model: change these lines of your application,"
            for call in app.calls:
                new = call.replacement(is_named=app.target.is_code)
                yield f"#   {call.path.name}:{call.line}: {' '.join(call.source.split())}  ->  {new}"
            yield '# with `from vinelm import VineLM` and `vine = VineLM("models.toml")` above them.'
        elif not app.calls and app.models:
            yield ""
            yield f"# {TODO}: no line of your code makes {', '.join(app.models)}: put vine.around(...) around it."
        else:
            yield ""
        yield "def build(vine):"
        if app.target.kind == "function":
            yield from self._function()
            return
        made = {
            "maker": f"{self._graph}()",
            "config-maker": f'{self._graph}({{"configurable": {{}}}})',
            "vine-maker": f"{self._graph}(vine)",
            "model-maker": f"{self._graph}(vine.chat_model())",
        }.get(app.target.kind, self._graph)
        made = f"asyncio.run({made})" if inspect.iscoroutinefunction(app.target.value) and not app.target.is_code else made
        note = "  # each node that calls it is a stage" if app.target.kind == "model-maker" else ""
        if app.wants_store:
            made, note = f'{made}.copy(update={{"store": InMemoryStore()}})', "  # a store, as LangGraph's server gives one"
        yield f"    return {made}{note}"

    def _function(self) -> Iterator[str]:
        """Yield the code of a function that takes the inputs, calls the application's function and returns a dict."""
        value = self.application.target.value
        called = f"{self._graph}({'inputs' if code_keys(value).takes_dict else '**inputs'})"
        is_async = inspect.iscoroutinefunction(function_of(value))
        yield f"    {'async ' if is_async else ''}def run_once(inputs):"
        yield f"        found = {'await ' if is_async else ''}{called}"
        has_fields = fields_returned(function_of(value))
        state = "dict(vars(found))" if has_fields else f'{{"{ANSWER}": getattr(found, "text", found)}}'
        yield f"        return found if isinstance(found, dict) else {state}"
        yield ""
        yield "    return run_once"

    def _template(self) -> Iterator[str]:
        app = self.application
        if app.template is None:
            yield ""
            yield f"# {TODO}: write the template (docs/shapes.md has some to copy), and give it to Workflow below."
            yield f"# The graph does not say it: {app.reason}."
            yield f"# A template says in which order the stages run. The LLM nodes are {', '.join(app.stages)}, so for example"
            yield '#   template = Template((Stage("plan"), Loop((Stage("act"), Stage("review")), times=3)))'
            return
        yield ""
        if app.target.is_code:
            name = app.target.attribute
            yield f"# {TODO}: in which order does {name} call its models, and how often at most? This allows any order."
        else:
            yield "# Read from the graph: its stages in their order, where it branches, and how often its loops turn at most."
        if app.open_loops and not app.target.is_code:
            yield f"# {TODO}: how many turns does your loop take at most? The graph says none; times={FEW_TURNS} is a start."
        if "memory=" in template_code(app.template):
            yield "# memory=1 keeps the last choice of a loop only: all histories of these models would be too many."
        elif app.open_loops:
            yield "# Without memory= all histories are told apart, which is better where there are few turns (up to 3)."
        if self.asked:
            stages = ", ".join(self.asked)
            yield f"# {TODO}: which model runs today at {stages}? Give its name in models.toml: Stage(..., default=NAME)."
        steps = mapped(app.template.steps, lambda stage: replace(stage, default=self.defaults.get(stage.name, stage.default)))
        yield f"template = {template_code(replace(app.template, steps=steps))}"

    def _scorer(self) -> Iterator[str]:
        label, answer = self.keys.label, self.keys.answer
        yield ""
        if self.keys.shared:
            yield from self._shared_score()
            return
        yield from self._answer_of(label, answer)
        if label is None and self.keys.unlabelled:
            return
        yield ""
        yield ""
        yield "def score(request, state) -> bool:"
        if label is None:
            yield f"    # {TODO}: whether the answer is right, by a label or a rule. It is used offline only."
            yield "    # Where there is no label, a model can judge: score=llm_judge(...), see docs/profiling.md."
            yield '    raise NotImplementedError("say here when an answer is right")'
            return
        if self._is_json:
            yield from self._json_score(label)
            return
        yield _EQUAL
        yield f'    return answer_of(state).casefold() == str(request.data["{label}"]).strip().casefold()'

    def _answer_of(self, label: str | None, answer: str | None) -> Iterator[str]:
        yield "def answer_of(state) -> str:"
        if answer is None:
            yield f"    # {TODO}: return the answer from the final state of the graph."
            yield f"    # Its keys are {', '.join(self.application.output_keys)}."
            yield "    return str(dict(state))"
        elif answer == STRUCTURED:
            fields = self.application.structured
            if not self.keys.is_read:
                yield f"    # {TODO}: is this the field with the answer? The others: {', '.join(fields)}."
            yield f'    found = state.get("{STRUCTURED}")  # the object that response_format asks for'
            yield '    fields = found if isinstance(found, dict) else getattr(found, "__dict__", {})'
            yield f'    return str(fields.get("{self.keys.field}", "")).strip()'
        elif answer == MESSAGES:
            if not self.keys.is_read:
                others = ", ".join(key for key in self.application.output_keys if key not in (MESSAGES, STRUCTURED))
                yield f"    # {TODO}: is the text of the last message the answer? The state also has {others}."
            yield '    messages = state.get("messages")'
            if self.application.forces_tools:
                yield '    if messages and getattr(messages[-1], "tool_calls", None):  # a model that has to call a tool'
                yield '        given = messages[-1].tool_calls[0]["args"]'
                yield f'        return str(given.get("{label or ANSWER}", given)).strip()'
            if not self._reads_json:
                yield '    return messages[-1].text.strip() if messages else ""'
                return
            yield '    said = messages[-1].text.strip() if messages else ""'
            yield "    try:"
            yield "        found = json.loads(said)  # your code writes JSON: the answer is a field of it, if there is one"
            yield "    except ValueError:"
            yield "        return said"
            yield f'    return str(found["{label}"]).strip() if isinstance(found, dict) and "{label}" in found else said'
        else:
            if not self.keys.is_sure and len(self.application.output_keys) > 1:
                yield f"    # {TODO}: is this the key with the answer? The others: {', '.join(self.application.output_keys)}."
            if self._is_json:
                yield f'    answer = state.get("{answer}", "")'
                yield "    return answer if isinstance(answer, str) else json.dumps(answer)"
            elif self.application.target.is_code and self.application.output_keys == (ANSWER,) and label not in (None, ANSWER):
                yield "    # The source does not say which keys your function returns: the label's, if that is one."
                yield f'    return str(state.get("{label}", state.get("{ANSWER}", ""))).strip()'
            else:
                yield f'    return str(state.get("{answer}", "")).strip()'

    @property
    def _is_json(self) -> bool:
        return self.keys.is_json and not self.keys.shared

    @property
    def _reads_json(self) -> bool:
        """Return whether the answer may be a field of JSON in the graph's last message."""
        return self.keys.answer == MESSAGES and not self.keys.is_read and self.application.writes_json and bool(self.keys.label)

    def _json_score(self, label: str) -> Iterator[str]:
        """Yield the lines of a scorer that compares an answer with a label that is a JSON object or list."""
        yield "    # Equal JSON. Write your own rule where answers may differ in form; a number in [0, 1] is a partial score."
        yield "    try:"
        yield "        answer = json.loads(answer_of(state))"
        yield "    except ValueError:"
        yield "        return False"
        yield f'    return answer == request.data["{label}"]'

    def _shared_score(self) -> Iterator[str]:
        """Yield the code of a scorer for several labels, each of which is compared with the state's key of the same name."""
        yield "def score(request, state) -> bool:"
        yield _EQUAL
        yield f"    keys = ({', '.join(json.dumps(key) for key in self.keys.shared)})  # of the state, and of the dataset"
        yield "    return all("
        yield '        str(state.get(key, "")).strip().casefold() == str(request.data[key]).strip().casefold()'
        yield "        for key in keys"
        yield "    )"

    @cached_property
    def _filling(self) -> str | None:
        """The name of a dict in the application's module that has all input fields which the requests lack.

        None if there is none or several, or if the input has several keys or lists of objects.
        """
        target, names = self.application.target, {name.partition(" of ")[0] for name in self.keys.missing}
        if not names or self.keys.lists or len({key for key, _ in self.keys.inputs}) > 1:
            return None
        held = [name for name, value in vars(target.module).items() if isinstance(value, dict) and names <= value.keys()]
        return held[0] if len(held) == 1 and held[0] not in _OWN_NAMES else None

    def _inputs(self) -> Iterator[str]:
        keys = self.keys
        able = ", ".join(self.application.input_keys)
        yield ""
        yield "def inputs(request) -> dict:"
        if not keys.inputs and self.application.target.kind == "function" and not able:
            yield "    return {}"
        elif not keys.inputs:
            yield f"    # {TODO}: return what the application is called with{f': its input may have {able}' if able else ''}."
            hidden = "".join(f'"{label}", ' for label in keys.labels)
            some = f"{{key: value for key, value in request.data.items() if key not in ({hidden.strip()})}}"
            yield f"    return {some if hidden else 'dict(request.data)'}"
        else:
            if self._filling:
                yield f"    # {self._filling} has the fields that the application reads and that no column gives."
            elif keys.missing:
                yield f"    # {TODO}: give {', '.join(keys.missing)}, too, which the application reads."
            elif not keys.is_sure:
                yield f"    # {TODO}: is this what the graph is invoked with? Its input may have {able}."
            lacking = [key for key in self.application.required if key not in dict(keys.inputs)]
            ids = [f'"{key}": request.id' for key in lacking if key.endswith("id")]
            if others := [key for key in lacking if not key.endswith("id")]:
                yield f"    # {TODO}: give {', '.join(others)}, too, without which the state is refused."
            pairs = ", ".join([*_input_pairs(keys, self._filling, as_objects=self._makes_messages), *ids])
            yield f"    return {{{pairs}}}"

    def _workflow(self) -> Iterator[str]:
        keys, dataset = self.keys, self.dataset
        yield from self._inputs()
        yield ""
        yield ""
        if dataset is None:
            yield f"# {TODO}: one JSON object for each request and its label, in a file beside this one; 100 requests or more."
        place = (dataset or Path(DEFAULT_DATASET)).as_posix()
        yield f'requests = read_dataset(Path(__file__).resolve().parent / "{place}").requests'
        yield "workflow = Workflow("
        yield f'    name="{self.name}",'
        if self.application.template is not None:
            yield "    template=template,"
        yield "    build=build,"
        yield "    requests=requests,"
        yield "    inputs=inputs,"
        if keys.labels:
            names = "".join(f'"{label}", ' for label in keys.labels).strip()
            yield f"    labels=({names if len(keys.labels) == 1 else names.rstrip(',')}),  # never shown to the graph"
        yield from self._scoring()
        yield from self._shown()
        if self.application.calls_graphs and not self.application.repeating:
            nodes = ", ".join(self.application.calls_graphs)
            yield f"    # {nodes} calls a graph, inside of which no checkpoint can be resumed: a request is run from"
            yield "    # its start with recorded answers. `unrepeatable=` names tools that must not run again."
            yield "    replay=True,"
        if self.application.repeating:
            nodes = ", ".join(self.application.repeating)
            yield f"    # {nodes} may call a model several times, which no checkpoint separates: a request is run"
            yield "    # from its start with recorded answers. `unrepeatable=` names tools that must not run again."
            yield "    replay=True,"
        if self.application.context is not None:
            yield from self._context(self.application.context)
        yield from self._answers()
        if self._has_writer:
            yield f'    writer=TextWriter("{keys.label}"),  # writes the answers of simulated models'
        yield ")"

    @staticmethod
    def _context(schema: type) -> Iterator[str]:
        """Yield the lines of code that give each run a context object for the graph's nodes, created from the class ``schema``.

        If a field of ``schema`` has no default, the line that creates the object is commented out, and a ``TODO`` asks for the
        value.
        """
        required = required_of(schema)
        given = ", ".join(f"{name}=..." for name in required)
        if required:
            yield f"    # {TODO}: what is {' and '.join(required)} of the {schema.__name__} that the nodes are given?"
        yield f"    {'# ' if required else ''}context=lambda request: {_context_name(schema)}({given}),"

    def _answers(self) -> Iterator[str]:
        """Yield the lines for graphs that wait for a person: they give the person's answer while the workflow is profiled.

        Yield nothing if the graph waits for nobody.
        """
        waiting = self.application.waiting
        if not waiting:
            return
        nodes, known = ", ".join(waiting), list(dict.fromkeys(waiting.values()))
        if len(known) == 1 and known[0] is not None:
            yield f"    # What a person who agrees would answer where {nodes} waits: in a profile nobody is asked."
        else:
            yield f"    # {TODO}: what would a person answer where {nodes} waits? In a profile nobody is asked."
        answer = next((one for one in known if one is not None), '"approve"')
        yield f"    answer_interrupt=lambda request, value: {answer},"

    def _scoring(self) -> Iterator[str]:
        """Yield the lines that declare the scorer. If requests lack labels, it compares with the current setup's answers."""
        if not self.keys.unlabelled:
            yield "    score=score,"
            return
        yield "    # Without a label today's answer counts, until a person has said otherwise (`vinelm label`)."
        answer = "answer_of"
        if self.keys.shared:
            keys = ", ".join(json.dumps(key) for key in self.keys.shared)
            answer = f"lambda state: {{key: state.get(key) for key in ({keys})}}"
        labelled = "".join(f"{json.dumps(label)}, " for label in self.keys.labels).rstrip()
        more = f", score=score, labels=({labelled})" if labelled else ""
        yield f"    score=as_today({answer}{more}),"

    def _shown(self) -> Iterator[str]:
        """Yield commented lines that suggest declaring signals, which are optional but very useful.

        A signal is what an answer shows without its label.
        """
        answer, shared = self.keys.answer, self.keys.shared
        yield "    # What an answer shows without its label, which plans then use (docs/signals.md):"
        yield '    # signal="status",  # whether the call failed, and what a vine.route said; or your own function of the state'
        if shared:
            yield f"    # answer=({', '.join(json.dumps(key) for key in shared)}),  # their values are kept in the store"
            yield "    # agree=lambda one, other: one == other,  # whether two answers, each a dict of these keys, are equal"
            return
        if answer is None or answer in (MESSAGES, STRUCTURED):
            yield '    # answer=("answer",),  # the key of the state with the answer, for comparing answers'
            yield "    # agree=lambda one, other: one == other,  # whether two answers are equal"
            return
        yield f'    # answer=("{answer}",),  # its value is kept in the store'
        yield "    # agree=lambda one, other: str(one).strip() == str(other).strip(),  # whether two answers are equal"


def _own(attribute: str) -> str:
    """Return the name under which the workflow file imports an attribute of the application's module.

    It is the attribute's own name, or ``app`` if the workflow file uses that name for something else.
    """
    return "app" if attribute in _OWN_NAMES else attribute


def _is_importable(module: str) -> bool:
    """Return whether an ``import`` statement can name this module; it cannot name the module of ``01-agent.py``."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in module.split("."))


def _imports(module: str, names: Mapping[str, str]) -> list[str]:
    """Return the lines of code that import names of a module. ``names`` maps each name to its name in the workflow file."""
    if _is_importable(module):
        return [f"from {module} import {', '.join(old if new == old else f'{old} as {new}' for old, new in names.items())}"]
    return [f"{new} = import_module({json.dumps(module)}).{old}" for old, new in names.items()]


def _context_name(schema: type) -> str:
    return "AppContext" if schema.__name__ in _OWN_NAMES else schema.__name__


def _input_pairs(keys: RequestKeys, filling: str | None, *, as_objects: bool) -> Iterator[str]:
    """Yield, for each input key, an entry of the dict that is the graph's input, as code: the key and its value.

    The value is the column that fills the key. If columns fill fields of the key's value, it is a dict of these fields.
    ``filling`` is the name of a dict with the remaining fields; None without one.
    """
    if not keys.fields:
        yield from (_input_pair(key, column, as_objects) for key, column in keys.inputs)
        return
    for key in dict.fromkeys(key for key, _ in keys.inputs):
        columns = [column for one, column in keys.inputs if one == key]
        fields = [f'"{keys.fields[column]}": request.data["{column}"]' for column in columns]
        held = "{" + ", ".join([f"**{filling}", *fields] if filling else fields) + "}"
        yield f'"{key}": [{held}]' if key in keys.lists else f'"{key}": {held}'


def _input_pair(key: str, column: str, as_object: bool) -> str:
    value = f'request.data["{column}"]'
    if key != MESSAGES:
        return f'"{key}": {value}'
    return f'"{key}": [HumanMessage({value})]' if as_object else f'"{key}": [{{"role": "user", "content": {value}}}]'
