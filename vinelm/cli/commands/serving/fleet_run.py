"""``vinelm fleet run``: a policy over the whole fleet."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.commands.serving.fleet_options import name_option, redis_option
from vinelm.cli.options import json_option, option
from vinelm.cli.policy_output import try_policy
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vinelm.controller import GlobalLoop
    from vinelm.controller.fleet.loop.global_loop import LoopRound


@click.command("run", short_help="Run a policy over all serving processes.")
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
def command(*, url: str | None, name: str, text: str, period_s: float, dry_run: Path | None, as_json: bool) -> int | None:
    """Read what all processes have under way, ask the policy, and install its orders, until the command is ended.

    Start it on two machines or more: one leads, the others wait and take over within seconds if it dies. Processes obey the
    orders from memory; without a leader they go on without orders after 30 s. A policy that fails, takes too long or says what
    cannot be meant changes nothing: a line says why, and its last good orders stay.

    With --dry-run nothing is installed; exit code 1 if orders for some view would be refused.

    Example: vinelm fleet run --redis redis://localhost:6379 --policy slack+balance+shares
    """
    if dry_run is not None:
        return try_policy(text, dry_run, period_s, as_json=as_json)
    if as_json:
        raise ConfigError("--json has no effect without --dry-run: leave it out")
    if url is None:
        raise ConfigError("name the fleet's Redis with --redis, or in VINELM_FLEET; or try the policy with --dry-run")
    from vinelm.controller import GlobalLoop, RedisLink
    from vinelm.controller.fleet.policies.finding import fleet_policy

    policy, link = fleet_policy(text), RedisLink(url, name)
    loop = GlobalLoop(link, policy, period_s=period_s)
    with _ended_by_signals(loop):
        loop.run(_Teller(name, text))
    return None


@contextmanager
def _ended_by_signals(loop: GlobalLoop) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the loop after its round: it then resigns, and another leads at once."""
    import signal

    before = {number: signal.signal(number, lambda *_: loop.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Teller:
    """Says on stderr what has changed since the round before."""

    def __init__(self, name: str, policy: str) -> None:
        self._name, self._policy = name, policy
        self._state, self._problem = "", ""

    def __call__(self, done: LoopRound) -> None:
        from vinelm.cli.console import echo

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
