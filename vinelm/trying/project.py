"""The first part of ``vinelm try``: finds the project files of an application (workflow file, catalog), or writes them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm import errors
from vinelm.adapters.langgraph.structure.code import template_code
from vinelm.errors import ConfigError, InputError, WorkflowError
from vinelm.io.atomic import write_atomic
from vinelm.scaffold.applied import contents, finish, restore
from vinelm.scaffold.project import make_project, models_for, within_reach, workflow_file_of
from vinelm.scaffold.target import project_folder, root_of
from vinelm.scaffold.workflow_file import TODO, with_answer, with_defaults
from vinelm.template import Loop, Template
from vinelm.template.steps import longer, walk

if TYPE_CHECKING:
    from vinelm.replay.traced import Traces

REQUESTS_FILE = "requests.jsonl"
_CHILD = "import sys; from vinelm.trying.project import write_apart; sys.exit(write_apart(*sys.argv[1:]))"


@dataclass(frozen=True, kw_only=True)
class FirstRun:
    """The settings of the first ``vinelm try`` of an application: arguments of :func:`~vinelm.try_app` with the same names."""

    app: str
    dataset: str | None
    label_field: Sequence[str]
    models: str | None
    today: str | None
    apply: bool


def with_requests(asked: FirstRun, recorded: Traces, before: Before) -> FirstRun:
    """If the application has no project yet, write the requests in recorded traces to a file next to the application.

    Return the settings with this file as the dataset; if there is a project, return ``asked`` unchanged. The file's old content
    is added to ``before``.

    Raises:
        ConfigError: The traces have no inputs, or another file has that name.
    """
    here = Path.cwd()
    folder = project_folder(root_of(asked.app, here), here)
    if workflow_file_of(here).exists() or workflow_file_of(folder).exists():
        return asked
    before |= contents([(folder / REQUESTS_FILE).resolve()])
    recorded.write_rows(folder / REQUESTS_FILE)
    return replace(asked, dataset=str(folder / REQUESTS_FILE))


Before = dict[Path, bytes | None]
"""Files, and what was in each before a run; None for a missing file."""


@contextmanager
def put_back(before: Before, tell: Callable[[str], None]) -> Iterator[None]:
    """When the ``with`` block ends, restore the old contents of the files in ``before``.

    Before the block changes a file, it adds the file's old content to ``before``. The names of the restored files are passed to
    ``tell``. Modules that the block imported from the folders of these files are removed from ``sys.modules``, because their
    code may be the changed version.
    """
    known = dict(sys.modules)
    try:
        yield
    finally:
        written = sorted(path.name for path, content in contents(before).items() if content != before[path])
        restore(before)
        folders = {path.resolve().parent for path in before}
        for name, module in [(name, one) for name, one in sys.modules.items() if one is not known.get(name)]:
            file = getattr(module, "__file__", None) or "site-packages"
            if "site-packages" not in file and any(Path(file).resolve().is_relative_to(one) for one in folders):
                del sys.modules[name]
        if written:
            tell(f"a dry run leaves no trace: {', '.join(written)} as before")


def project_of(asked: FirstRun, tell: Callable[[str], None], before: Before) -> Path:
    """Return the folder of an application's project; if the project does not exist yet, write its files.

    ``tell`` is called with lines of text: the changed files, and what the user still has to do.

    With ``apply`` another process imports and changes the application, so that this process imports the changed version. The
    old contents of the written files are added to ``before``.

    Raises:
        InputError: The application cannot be read, or makes its own models, or a first run has no data set.
    """
    here = Path.cwd()
    finish(here)
    if workflow_file_of(here).exists():
        return here
    folder = project_folder(root_of(asked.app, here), here)
    finish(folder)
    if workflow_file_of(folder).exists():
        return folder
    if asked.dataset is None:
        raise ConfigError("a first run needs --dataset or --traces: requests, with their right answers where you have them")
    written = _written_apart(asked) if asked.apply else _write(asked)
    before |= {Path(path): None if was is None else was.encode("latin-1") for path, was in written["before"].items()}
    for path in written["edited"]:
        tell(f"changed {path}: vine.around(...) is around its models")
    for todo in written["todo"]:
        tell(f"to do  {workflow_file_of(folder).name}:{todo}")
    _require_new(written["edited"])
    return folder


def _write(asked: FirstRun) -> dict[str, Any]:
    """Import the application, write the files of its project, and return what was done.

    Returns:
        ``edited``: the application's files that were changed. ``todo``: lines that say what the user still has to do.
        ``before``: the old text of each written file by its path, decoded as Latin-1; None for a new file.
    """
    from vinelm.datasets import Columns, read_dataset
    from vinelm.scaffold import read_application
    from vinelm.scaffold.catalog_file import chosen_models

    here = Path.cwd()
    found = read_application(asked.app, here)
    folder = project_folder(found.target.root, here)
    found = found if asked.today is None else found.running_today(chosen_models([asked.today])[0])
    if found.calls and not asked.apply:
        places = ", ".join(dict.fromkeys(f"{call.path.name}:{call.line}" for call in found.calls))
        raise ConfigError(
            f"your app makes its own models ({places}), and VineLM chooses only where it is around them: run this line "
            "again with --apply, which adds vine.around(...) there, or add it as `vinelm init` says"
        )
    rows = read_dataset(str(asked.dataset), Columns())
    chosen = models_for(found, folder, asked.models)
    project = make_project(found, folder, chosen, dataset=rows, labels=asked.label_field, is_applied=asked.apply)
    before = contents([*project.files, *project.edits])
    project.write()
    edited = [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in project.edits]
    was = {str(path.resolve()): None if content is None else content.decode("latin-1") for path, content in before.items()}
    return {"edited": edited, "todo": [f"{line}: {text}" for line, text in project.todos], "before": was}


def _written_apart(asked: FirstRun) -> dict[str, Any]:
    """Run :func:`_write` in another process and return its result."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        line = [sys.executable, "-c", _CHILD, str(answer), json.dumps(asdict(asked))]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, check=False)
        if not answer.exists():
            raise WorkflowError(
                f"{asked.app}: importing it ended the process (exit code {done.returncode}): move what does so into a function"
            )
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        kind, message, code = found["error"]
        raise getattr(errors, kind)(message, code=code)
    return found


def write_apart(answer: str, asked: str) -> int:
    """Write a project, and its outcome or error as JSON to the file ``answer``; return the exit code: 0, or 130 after Ctrl-C.

    ``asked`` is a JSON object with the fields of a :class:`FirstRun`.
    """
    try:
        found = _write(FirstRun(**json.loads(asked)))
    except InputError as error:
        found = {"error": [type(error).__name__, str(error), error.code]}
    except KeyboardInterrupt:
        return 130
    Path(answer).write_text(json.dumps(found), encoding="utf-8")
    return 0


def _require_new(edited: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if this process (a notebook, for example) has imported one of the ``edited`` files already.

    It would then run the old code.
    """
    loaded = {Path(file).resolve() for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    old = [path for path in edited if Path(path).resolve() in loaded]
    if old:
        raise ConfigError(f"{', '.join(old)}: changed just now, and this process still has the old code: restart it, and go on")


LONGEST = 24
"""The most turns that are tried if nobody has declared how many a loop takes."""
_OPEN = ("how many turns does your loop take", "how often at most?")
"""What a workflow file's notes ask for as long as its author has not declared it."""


def note_turns(file: Path, template: Template, n_models: int) -> str | None:
    """Write a template with twice as many turns of each loop into the workflow file.

    Args:
        file: The workflow file.
        template: The file's template, without models.
        n_models: The number of models in the catalog.

    Returns:
        A line that says what was written; None if twice the turns would be too many, or the file does not assign
        ``template`` exactly once.
    """
    text = file.read_text(encoding="utf-8")
    turns = max((step.times for step in walk(template.steps) if isinstance(step, Loop)), default=LONGEST)
    places = [one for one in ast.parse(text).body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "template"]
    if len(places) != 1 or 2 * turns > LONGEST:
        return None
    new = within_reach(replace(template, steps=longer(template.steps, 2)), n_models)
    lines = text.split("\n")
    lines[places[0].lineno - 1 : places[0].end_lineno] = f"template = {template_code(new)}".split("\n")
    write_atomic(file, "\n".join(lines).encode())
    return f"turns  a request takes more than {turns} turns of a loop: {file.name} allows {2 * turns} now"


def asks_for_turns(file: Path) -> bool:
    """Return whether a note in the workflow file still asks the user how many turns its loops take."""
    return any(f"{TODO}: " in line and any(words in line for words in _OPEN) for line in file.read_text("utf-8").split("\n"))


def note_answer(file: Path, code: str) -> str | None:
    """Write into the workflow file that ``answer_of`` reads the answer with this Python code.

    Returns:
        A line that says what was written; None if the file's author has already decided where the answer is.
    """
    text = file.read_text(encoding="utf-8")
    new = with_answer(text, code)
    if new == text:
        return None
    write_atomic(file, new.encode())
    return f"answer  the label's value comes back in {code}: {file.name} reads the answer there"


def note_today(file: Path, today: Mapping[str, str], source: str) -> str:
    """Write the current models, keyed by stage, into the workflow file. ``source`` is a text that says how they are known.

    Returns:
        A line that says what was written.

    Raises:
        ConfigError: The file has no place for these models.
    """
    text = file.read_text(encoding="utf-8")
    new = with_defaults(text, today)
    said = ", ".join(f"{stage} {model}" for stage, model in today.items())
    if new == text:
        raise ConfigError(f"write what runs today into the template of {file.name} ({said}), and run the same line again")
    write_atomic(file, new.encode())
    return f"today  {said}: {source}; written into {file.name}"
