"""``vinelm label``: asks a person which of two answers of a replay or a profile is better."""

from __future__ import annotations

import getpass
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import say, show_screen
from vinelm.cli.options import flag, option, store_argument
from vinelm.cli.quantities import Count
from vinelm.cli.waiting import held
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from vinelm.replay.labelling.desk import Desk

LINES = 12
"""How many lines of an answer are shown until ``p`` shows the rest."""
KEYS = {"1": "left", "2": "right", "3": "both", "4": "neither", "5": "skip"}


@click.command("label", short_help="Say which of two answers is better.")
@store_argument
@option("--who NAME", "Whose labels these are [default: your login].")
@flag("--page", "Ask on a page of this machine instead of in the terminal; several persons can use it.")
@option("--port N", "Port of that page [default: a free one].", Count(1), default=0)
@option("--file HTML", "Write the next questions to one HTML file, to send to a colleague.", Path)
@option("--questions N", "How many questions that file has [default: 30].", Count(1), default=30)
@option("--read JSON", "Keep the answers that a page of --file saved.", Path)
@option("--score MODULE:FUNCTION", "Let score(messages, answer) answer what waits: a score from 0 to 1.")
def command(
    *,
    store: Path,
    who: str | None,
    page: bool,
    port: int,
    file: Path | None,
    questions: int,
    read: Path | None,
    score: str | None,
) -> None:
    """Ask which of two recorded answers is better, without showing which model wrote which.

    STORE is the store of `vinelm replay`, or of `vinelm try` for requests without labels. Questions are asked only about
    requests to which today's models and the plan under test give different answers. Keys: 1 left, 2 right, 3 both, 4
    neither, 5 cannot say, g two scores from 0 to 1, u undo, p the whole prompt, q stop. Each label is stored at once; several
    persons may label at the same time.

    --page serves a web page on 127.0.0.1 only, at an address with a secret part. --file writes prompts and answers in plain
    text: send the file only to people who may see them.

    Example: vinelm label app.db

    Example: vinelm label replay.db --score rules:score
    """
    from vinelm.replay.kept import opened
    from vinelm.replay.labelling.desk import Desk
    from vinelm.replay.labelling.page import LabelPage, file_of, read_labels
    from vinelm.replay.labels import put_scores
    from vinelm.replay.same import named_function
    from vinelm.trie.verdict import counted

    if sum((page, *(way is not None for way in (file, read, score)))) > 1:
        raise ConfigError("--page, --file, --read and --score are ways to label: use one at a time")
    name = who or getpass.getuser()
    with opened(store) as kept:
        desk = Desk(kept)
        if score is not None:
            count = put_scores(kept, named_function(score, "--score"), who or score)
            say(f"{counted(count, 'question')} answered by {score}. {desk.standing()}")
        elif read is not None:
            whose, count = read_labels(read, desk)
            say(f"{count} labels of {whose} kept. {desk.standing()}")
        elif file is not None:
            asked = desk.next_questions(name, questions)
            if not asked:
                raise ConfigError(f"no question is left for {name}: {desk.standing()}")
            _write(file, file_of(asked), len(asked))
        elif page:
            with held(), LabelPage(desk, who=name, port=port) as served:
                say(f"Open {served.address} in a browser of this machine. Ctrl-C ends; every label is kept.")
                served.serve_forever()
        else:
            with held():
                _ask(desk, name)


def _write(path: Path, page: str, count: int) -> None:
    """Write the page with ``count`` questions to a new file that only its owner can read, because it contains prompts and
    answers in plain text.
    """
    from vinelm.io.atomic import atomic_path

    if path.exists():
        raise ConfigError(f"{path} exists: name another file for --file")
    try:
        with atomic_path(path) as draft:
            draft.touch(mode=0o600)
            draft.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    say(f"{path} has {count} questions: open it in a browser, answer, save, and keep the answers with --read labels.json")


def _ask(desk: Desk, who: str) -> None:
    """Ask in the terminal until no question is left or the user enters ``q``. Each label is stored at once."""
    if not sys.stdin.isatty():
        raise ConfigError("labels are typed on a terminal, and this is none: use --page or --file")
    asked = desk.next_question(who)
    while asked is not None:
        _show(asked, desk.standing(), whole=False)
        while (key := click.getchar()) == "p":
            _show(asked, desk.standing(), whole=True)
        if key in ("q", "\x03", "\x04"):
            break
        if key == "g":
            said = click.prompt("scores of left and right, from 0 to 1", default="", show_default=False)
            try:
                desk.put_label(asked["question"], "/".join(said.replace("/", " ").split()), who)
            except ConfigError:
                say("not kept: give two scores from 0 to 1, such as 0.7 0.4")
            else:
                asked = desk.next_question(who)
        elif key == "u":
            asked = desk.undo(who) or asked
        elif key in KEYS:
            desk.put_label(asked["question"], KEYS[key], who)
            asked = desk.next_question(who)
    say(f"{'No question is left for you now. ' if asked is None else ''}{desk.standing()}")


def _show(asked: Mapping[str, Any], standing: str, *, whole: bool) -> None:
    """Print the question ``asked`` below ``standing``, a line on the progress. Unless ``whole`` is true, print only the end of
    the prompt and the first lines of each answer.
    """
    width = min(shutil.get_terminal_size().columns, 100)
    dim, plain = {"dim": True}, dict[str, bool]()
    prompt = [f"{role}: {text}" for role, text in asked["prompt"]]
    shown = "\n".join(prompt) if whole else textwrap.shorten(prompt[-1] if prompt else "", 2 * width, placeholder=" ...")
    lines = [[(f"{asked['step'] or 'one step'} · {standing}", dim)], [(shown, plain)]]
    for side in ("left", "right"):
        answer: list[list[tuple[str, dict[str, bool]]]] = [[]]
        for text, differs in asked[side]:
            first, *others = text.split("\n")
            style = {"underline": True} if differs else plain
            answer[-1].append((first, style))
            answer += [[(one, style)] for one in others]
        if len(answer) > LINES and not whole:
            answer[LINES:] = [[("... (p shows the rest)", dim)]]
        lines += [[(f"{f'{side} ':─<{width}}", {"bold": True})], *answer]
    show_screen([*lines, [("1 left  2 right  3 both  4 neither  5 cannot say  g scores  u undo  p all  q stop", dim)]])
