"""A command that is run in a process of its own by another one, and ends with it: whoever stops the one stops the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from vinelm.cli.failures import EXIT_INTERRUPTED
from vinelm.cli.waiting import held
from vinelm.io.operating_system import ENDING, apart, kill_self, signal_self

GRACE_S = 20.0
"""How long a command may take to end by itself once the process that runs it is gone: to settle the calls under way."""
_INSISTS = 3
_MAIN = "from vinelm.cli.subcommand import main; main()"


def run_command(folder: Path, *arguments: str, accepted: Sequence[int] = (0,)) -> str:
    """Run a command of ``vinelm`` in a folder, and return what it prints on stdout.

    What it says on stderr, its progress and its error, is shown as it comes. A signal to this process goes on to it, and this
    process waits until it has ended. If this process is killed, it ends as well.

    Raises:
        click.exceptions.Exit: With its exit code, unless that is accepted.
        KeyboardInterrupt: One of the two was stopped, and the command could not say so.
    """
    ours, theirs = os.pipe()  # of which nothing is ever read: it ends with the process that holds its other end
    in_session = apart(ours)  # of its own: Ctrl-C on the terminal reaches this process alone, and is passed on once
    process: list[subprocess.Popen[str]] = []
    with held(), _passing_on(process) as stopped:  # it shows its own sign of life
        try:
            process.append(
                subprocess.Popen(
                    [sys.executable, "-c", _MAIN, str(ours) if in_session else "-", *arguments],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    env={**os.environ, "PYTHONIOENCODING": "utf-8"},
                    **in_session,
                )
            )
            os.close(ours)
            if stopped:  # before there was a process
                _interrupt(process[0])
            printed, _ = process[0].communicate()
        finally:
            os.close(theirs)
    code = process[0].returncode
    if code != EXIT_INTERRUPTED and (stopped or -code in ENDING):
        raise KeyboardInterrupt  # the command itself could not say so
    if code not in accepted:
        raise click.exceptions.Exit(code if code >= 0 else 1)
    return printed


@contextmanager
def _passing_on(process: list[subprocess.Popen[str]]) -> Iterator[list[int]]:
    """Pass the signals that end a process on to another, and Ctrl-Z too; yields those that came."""
    came: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        came.append(number)
        for one in process:  # as Ctrl-C, which no application takes for itself; whoever insists is obeyed
            if len(came) < _INSISTS:
                _interrupt(one)
            else:
                one.kill()

    def pause(_number: int, _frame: FrameType | None) -> None:
        for one in process:
            one.send_signal(signal.SIGSTOP)
        signal_self(signal.SIGSTOP)
        for one in process:
            one.send_signal(signal.SIGCONT)

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    handlers: dict[int, Callable[[int, FrameType | None], None]] = dict.fromkeys(ENDING, pass_on)
    if hasattr(signal, "SIGTSTP"):
        handlers[signal.SIGTSTP] = pause
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup has it
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(process: subprocess.Popen[str]) -> None:
    if os.name == "posix":  # elsewhere the two share the console, which has told both
        process.send_signal(signal.SIGINT)


def main() -> None:
    """Run a command as :func:`run_command` asks for it, until that process is gone."""
    from vinelm.cli.main import main as run

    lifeline = sys.argv.pop(1)  # the arguments after it are the command's
    if lifeline != "-":
        os.set_inheritable(int(lifeline), False)
        threading.Thread(target=_end_with, args=(int(lifeline),), daemon=True, name="vinelm lifeline").start()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background without it
    sys.exit(run())


def _end_with(lifeline: int) -> None:
    """Ask this process to end as soon as the other end is gone, and kill it if it does not."""
    with suppress(OSError):
        os.read(lifeline, 1)
    signal_self(signal.SIGINT)
    time.sleep(GRACE_S)
    kill_self()
