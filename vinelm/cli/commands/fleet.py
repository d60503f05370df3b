"""``vinelm fleet``: runs a policy over all serving processes, and shows their state."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, say, show_table, stdout, watch_table
from vinelm.cli.options import SuggestingGroup, flag, json_option, option
from vinelm.errors import ConfigError, InputError
from vinelm.reports import seconds, usd

if TYPE_CHECKING:
    from vinelm.controller import GlobalLoop
    from vinelm.controller.fleet.loop.global_loop import LoopRound
    from vinelm.controller.fleet.loop.policy_runs import PolicyCheck
    from vinelm.controller.fleet.loop.status import FleetStatus

PERIOD_S = 1.0
"""Seconds from one table to the next."""
MOST_PROBLEMS = 5


def redis_option(*, required: bool) -> Callable[[Any], Any]:
    """Return the decorator that adds the option ``--redis`` to a command: the address of the fleet's Redis."""
    return option(
        "--redis URL",
        "The fleet's Redis, as in VineLM(fleet=...): redis://host:port/db, rediss://... or unix://...",
        into="url",
        required=required,
        envvar="VINELM_FLEET",
        show_envvar=True,
    )


name_option = option("--name NAME", "The fleet's name.", default="default")


@click.group("fleet", cls=SuggestingGroup, short_help="Steer and watch the processes that serve together.")
def command() -> None:
    """Steer and watch the serving processes of a fleet: those that were started with VineLM(..., fleet="redis://...").

    Needs the extra `fleet`. Calls no model.

    Example: vinelm fleet top --redis redis://localhost:6379
    """


# -- run ---------------------------------------------------------------------------------------------------------


@command.command("run", short_help="Run a policy over all serving processes.")
@redis_option(required=False)
@name_option
@option(
    "--policy POLICY",
    "Names joined by +, as in slack+balance+shares. balance: fewer calls to slow replicas; hol: none to hanging ones; "
    "slack: the least time to spare first; srtf and lpt: the shortest or the longest rest first; shares: limits by what each "
    "process has under way. Your own: FILE.py, or FILE.py:FUNCTION.",
    into="text",
    required=True,
)
@option(
    "--every S",
    "Seconds from one round to the next, and the longest that the policy may take.",
    click.FloatRange(min=0, min_open=True),
    into="period_s",
    default=0.25,
)
@option(
    "--dry-run FILE",
    "Only try the policy on the views that `vinelm fleet top --record` wrote to FILE: print its orders, how long it takes, "
    "and what would be refused. Needs no Redis.",
    Path,
)
@json_option
def run(*, url: str | None, name: str, text: str, period_s: float, dry_run: Path | None, as_json: bool) -> int | None:
    """In each round, read the calls in flight of all processes, ask the policy for orders and send them to the processes.

    Runs until it is interrupted. Start it on two machines or more: one leads, the others wait and take over within seconds if
    the leader dies. Processes keep the orders in memory; without a leader they drop them after 30 s. If a policy fails, takes
    too long or gives an impossible order, its last good orders stay in force, and a line says why.

    With --dry-run no orders are sent: the policy is tried on recorded states of a fleet. Exit code 1 if some of its orders
    would be refused.

    Example: vinelm fleet run --redis redis://localhost:6379 --policy slack+balance+shares
    """
    if dry_run is not None:
        return _try_policy(text, dry_run, period_s, as_json=as_json)
    if as_json:
        raise ConfigError("--json has no effect without --dry-run: leave it out")
    if url is None:
        raise ConfigError("name the fleet's Redis with --redis, or in VINELM_FLEET; or try the policy with --dry-run")
    from vinelm.controller import GlobalLoop, RedisLink
    from vinelm.controller.fleet.built_in_policies import fleet_policy

    policy, link = fleet_policy(text), RedisLink(url, name)
    loop = GlobalLoop(link, policy, period_s=period_s)
    with _ended_by_signals(loop):
        loop.run(_Teller(name, text))
    return None


@contextmanager
def _ended_by_signals(loop: GlobalLoop) -> Iterator[None]:
    """Inside the block, let SIGINT and SIGTERM end the loop after its current round, so that another process leads at once."""
    before = {number: signal.signal(number, lambda *_: loop.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Teller:
    """A callback that prints to stderr, after each round, who leads the fleet and new problems of the policy. Prints only
    changes.
    """

    def __init__(self, name: str, policy: str) -> None:
        self._name, self._policy = name, policy
        self._state, self._problem = "", ""

    def __call__(self, done: LoopRound) -> None:
        if done.leads:
            state = f"leads the fleet {self._name!r} with {self._policy}"
        elif done.leader:
            state = f"waits: {done.leader} leads the fleet {self._name!r}"
        else:
            state = self._state
        if state != self._state:
            echo(state, err=True)
        if done.problem and done.problem != self._problem:
            echo(f"warning: {done.problem}", err=True)
        elif self._problem and not done.problem:
            echo("all is well again", err=True)
        self._state, self._problem = state, done.problem


def _try_policy(text: str, replay: Path, period_s: float, *, as_json: bool) -> int | None:
    """Run the policy on each recorded state of a fleet, and print the results. Return the exit code: 1 if any of its orders
    would be refused, otherwise None for success.
    """
    from vinelm.controller.fleet.built_in_policies import fleet_policy
    from vinelm.controller.fleet.loop.policy_runs import check_policy
    from vinelm.controller.fleet.loop.recording import recorded_views

    found = check_policy(fleet_policy(text), recorded_views(replay), period_s)
    if not found.views:
        raise InputError(f"recorded views {str(replay)!r} show no serving process: record them while one runs")
    if as_json:
        print_json({"policy": text, "replay": str(replay), **found.to_dict()})
    else:
        _show_check(text, replay, found)
    return 1 if found.problems else None


def _show_check(policy: str, replay: Path, found: PolicyCheck) -> None:
    from statistics import median

    rows = [
        (kind, f"{said.most:,}", *(f"{value + 0.0:.2f}" if kind != "pins" else "" for value in (said.least, said.greatest)))
        for kind, said in found.said.items()
        if said.most
    ]
    views = "1 view" if found.views == 1 else f"{found.views:,} views"
    say(f"{policy} on {views} of {replay}, with up to {found.most_rows:,} live invocations")
    if rows:
        show_table("What it orders", ("of", "most at once", "from", "to"), rows)
    else:
        say("It orders nothing.")
    took = f"{1000 * median(found.seconds):.1f} ms a view, {1000 * max(found.seconds):.1f} ms at worst"
    say(f"It took {took}; a round has {1000 * found.period_s:g} ms.")
    if not found.problems:
        say("All of its orders can be installed.")
        return
    for number, problem in list(found.problems.items())[:MOST_PROBLEMS]:
        echo(f"view {number}: {problem}")
    say(f"{len(found.problems):,} of {views}: refused. The orders before would stay.")


# -- top ---------------------------------------------------------------------------------------------------------


@command.command("top", short_help="Show what all serving processes have under way.")
@redis_option(required=True)
@name_option
@flag("--once", "Print one table and end, as with --json or where the output is not a terminal.")
@option("--record FILE", "Append a view a second to FILE, for `vinelm fleet run --dry-run`.", Path)
@json_option
def top(*, url: str, name: str, once: bool, record: Path | None, as_json: bool) -> None:
    """Show for each engine the calls of all processes: how many are running, queued and late.

    The table also has the engine's weight according to the policy's orders. Of several replicas, one with a larger weight gets
    more calls. Updates the table until Ctrl-C.

    Example: vinelm fleet top --redis redis://localhost:6379 --once
    """
    from vinelm.controller import FleetReader, RedisLink
    from vinelm.controller.fleet.loop.recording import ViewRecorder
    from vinelm.controller.fleet.loop.status import fleet_status

    link = RedisLink(url, name)
    with ExitStack() as stack:
        recorder = None if record is None else ViewRecorder(record)
        if recorder is not None:
            stack.callback(recorder.close)
        reader = FleetReader(link)
        stack.callback(reader.close)

        def status() -> FleetStatus:
            view = reader.view()
            if recorder is not None:
                recorder(view)
            return fleet_status(link, view, reader.catalogs())

        if as_json:
            print_json({"fleet": name, **status().to_dict()})
        elif once or not stdout().is_terminal:
            show_table(*_table(name, status()))
        else:
            watch_table(lambda: _table(name, status()), PERIOD_S)


def _table(name: str, status: FleetStatus) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
    """Return the title, columns and rows of the table of engines."""
    rows = [
        (
            one.engine,
            f"{one.running:,}",
            f"{one.queued:,}",
            seconds(one.longest_wait_s) if one.queued else "",
            seconds(one.mean_run_s) if one.running else "",
            f"{one.late:,}",
            usd(one.rest_usd),
            f"{one.weight:.2f}",
        )
        for one in status.engines
    ]
    return _head(name, status), ("engine", "running", "queued", "longest wait", "mean run", "late", "rest", "weight"), rows


def _head(name: str, status: FleetStatus) -> str:
    processes = "1 process" if status.processes == 1 else f"{status.processes:,} processes"
    orders = f"orders {status.version:,}" if status.version else "no orders"
    head = f"fleet {name}: {processes}, {status.live:,} live invocations; {orders}"
    if status.leader:
        head += f"\n{status.leader} leads"
    if status.catalogs > 1:
        head += f"\n{status.catalogs} different catalogs: each process goes by its own"
    return head
