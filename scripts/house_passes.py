"""Which of our files and functions five scenarios pass, as JSON; run by `house.py`.

Counted are the functions of the checkout that are entered, by Python's own tracing hook:

- served_stage: from `invoke` to the user's function, on a warm application that has a trie: a new session is made and plans.
- served_next_stage: from the end of the tool before a later stage of that request to the stage's own function.
- profiled_unit: from the user's function in one unit to the user's function in the next; units run inline.
- estimate, plan: the whole command.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

TOPS = ("vinelm", "controller", "estimator", "profiler", "traces", "workflows")
BUY = ("--isolation", "inline", "--budget-usd", "1")
Passed = set[tuple[str, str]]


class Recorder:
    """Files and functions of ``root`` that are entered while it is on; ``at_user`` is called when a user's function is."""

    def __init__(self, root: Path, users: tuple[CodeType, ...]) -> None:
        self._ours = tuple(str(root / top) + os.sep for top in TOPS)
        self._users = users
        self.passed: Passed = set()
        self.at_user: Callable[[], None] = lambda: None

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Python's tracing hook, which hears of calls alone where it returns nothing."""
        code = frame.f_code
        if code in self._users:
            self.at_user()
        elif code.co_filename.startswith(self._ours) and not code.co_name.startswith("<"):
            self.passed.add((code.co_filename, code.co_qualname))

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Record inside the block."""
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(None)


def listed(passed: Passed, root: Path) -> dict[str, list[str]]:
    """The files and the functions, in order."""
    names = [(str(Path(file).relative_to(root)), function) for file, function in passed]
    return {
        "files": sorted({file for file, _ in names}),
        "functions": sorted(f"{file} {function}" for file, function in names),
    }


def command(*line: str) -> None:
    """One ``vinelm`` command in this process, quietly."""
    from vinelm.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main(list(line))
        except SystemExit as error:
            if error.code:
                raise SystemExit(f"{' '.join(line)}: {said.getvalue()}") from None


def profiled_unit(recorder: Recorder, *line: str) -> Passed:
    """What lies between the user's function in one unit and in the next, once the profile is warm."""
    between: list[Passed] = []

    def at_user() -> None:
        between.append(recorder.passed)
        recorder.passed = set()

    recorder.at_user = at_user
    with recorder.on():
        command(*line)
    return between[len(between) // 2]


def served_stages(recorder: Recorder, prepare: Callable[[], Callable[[], object]]) -> list[Passed]:
    """What lies before each user's function of one request, the first counted from ``invoke``; what the caller does is not."""
    found: list[Passed] = []

    def at_user() -> None:
        found.append(recorder.passed)
        recorder.passed = set()

    for _ in range(3):
        prepare()()
    invoke = prepare()
    recorder.passed, recorder.at_user = set(), at_user
    with recorder.on():
        invoke()
    return found


def whole(recorder: Recorder, *line: str) -> Passed:
    """What one command passes, once its modules are imported."""
    command(*line)
    recorder.passed, recorder.at_user = set(), lambda: None
    with recorder.on():
        command(*line)
    return recorder.passed


def main() -> None:
    """Run the scenarios in a folder that is removed afterwards, and print what they pass."""
    root = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        print(json.dumps(passes(root)))


def passes(root: Path) -> dict[str, list[str]]:
    """What each scenario passes; writes into the current folder."""
    sys.path[:0] = [str(root / "docs" / "examples")]
    import my_app

    from vinelm import Catalog, Objective, VineLM

    catalog = str(root / "docs" / "examples" / "models.toml")
    recorder = Recorder(root, (my_app.solve.__code__, my_app.fix.__code__))
    profile = (
        "profile",
        "my_app:workflow",
        "--models",
        catalog,
        *["--store", "x.db", "--isolation", "inline", "--budget-usd", "1"],
    )
    found = {"profiled_unit": listed(profiled_unit(recorder, *profile), root)}
    estimate = ("estimate", "x.db", "-o", "x.vine", "--max-error", "1")
    found["estimate"] = listed(whole(recorder, *estimate), root)
    plan = ("plan", "x.vine", "--maximize", "accuracy", "--max-cost-usd", "0.01")
    found["plan"] = listed(whole(recorder, *plan), root)

    from vinelm.backends import create_backends

    models = Catalog.from_file(catalog)
    vine = VineLM(models, create_backends(models, workflow=my_app.workflow), trie="x.vine")
    app = my_app.build(vine).compile()
    recorder = Recorder(root, (my_app.solve.__code__, my_app.check.__code__, my_app.fix.__code__))

    def prepare(request: object) -> Callable[[], object]:
        context = vine.context(Objective(maximize="accuracy", max_latency_s=60.0), request=request)
        given = my_app.workflow.graph_input(request)
        return lambda: app.invoke(given, context=context)

    for request in my_app.workflow.requests:  # until one goes through solve, check and fix
        first, *later = served_stages(recorder, lambda request=request: prepare(request))
        if len(later) > 1:
            found |= {"served_stage": listed(first, root), "served_next_stage": listed(later[1], root)}
            break
    return found


if __name__ == "__main__":
    main()
