"""The first trial of a new user: applications as people write them, against a local OpenAI-compatible server.

    python scripts/first_trial.py                           # both groups, as tables
    python scripts/first_trial.py --json                    # one object
    python scripts/first_trial.py --apps agent,rag          # some of those that contain VineLM
    python scripts/first_trial.py --strangers               # those that do not know VineLM
    python scripts/first_trial.py --strangers swarm,debate  # some of them

Fourteen contain VineLM. Each is checked, profiled under a budget through the real client at the defaults, estimated, planned
and asked 60 requests that were not profiled. Sixteen do not know VineLM: each is taken through `vinelm init` and the commands
after it, unedited (``first_trial_parts/stranger.py``). The server is a process of its own on the loopback interface; its
answers depend on the prompt and the seed alone. All models are simulated.

Exit code 1 if one of the fourteen failed or was refused, or an aim of the strangers' trial was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from first_trial_parts.stranger import try_strangers
from first_trial_parts.stranger_figures import aims
from first_trial_parts.stranger_lines import aim_line, stranger_line
from places import PYTHONPATH
from strangers.cases import CASES

APPS = (
    "agent",
    "agent_structured",
    "chatbot_stage",
    "chatbot_model",
    "evaluator_optimizer",
    "sql_agent",
    "orchestrator",
    "plan_execute",
    "rag",
    "multi_turn",
    "interrupt_resume",
    "inner_agent",
    "side_by_side",
    "router",
)
PRICES = {"tiny": (0.1, 0.4), "mid": (0.5, 2.0), "big": (3.0, 12.0)}
ENTRY = """
[[model]]
name = "{name}"
provider = "openai"
model = "{name}"
api_base = "http://127.0.0.1:{port}/v1"
max_tokens = 64
price = {{ input = {input}, output = {output}, source = "the trial", as_of = 2026-01-01 }}
"""


def main() -> int:
    """Run the trial and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--apps", help="names of applications that contain VineLM, separated by commas")
    parser.add_argument("--strangers", nargs="?", const="all", help="names of those that do not know it; without names all")
    parser.add_argument("--budget-usd", type=float, default=0.03, help="dollars for each profile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for stores, tries and tracebacks")
    options = parser.parse_args()
    both = options.apps is None and options.strangers is None
    names = _names(parser, "all" if both else options.apps, APPS)
    strangers = _names(parser, "all" if both else options.strangers, [case.name for case in CASES])
    printed: dict[str, Any] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if names:
            with server(options.seed) as port:
                found = [run(name, folder, port, options.budget_usd, show=not options.json) for name in names]
            refused = [one["app"] for one in found if one["refused"]]
            failed = [one["app"] for one in found if one["failed"]] + refused
            printed |= {"apps": found, "refused": len(refused), "failed": failed}
            if not options.json:
                print(f"{len(found)} applications, {len(failed)} failed, {len(refused)} of them refused by check")
        if strangers:
            with server(options.seed, "strangers") as port:
                printed |= _strangers(strangers, folder, port, options)
    if options.json:
        print(json.dumps(printed, indent=1))
    return 1 if failed or not all(aim["met"] for aim in printed.get("aims", ())) else 0


def _names(parser: argparse.ArgumentParser, given: str | None, known: Sequence[str]) -> list[str]:
    """The names of a group that are wanted."""
    names = list(known) if given == "all" else [] if given is None else given.split(",")
    unknown = sorted(set(names) - set(known))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}: there are {', '.join(known)}")
    return names


def _strangers(names: list[str], folder: Path, port: int, options: argparse.Namespace) -> dict[str, Any]:
    """The trial of the applications that do not know VineLM."""
    started = time.perf_counter()

    def show(one: dict[str, Any]) -> None:
        if not options.json:
            print(stranger_line(one), flush=True)

    given = {"seed": options.seed, "budget_usd": options.budget_usd, "show": show}
    found = try_strangers(names, folder, port, **given)
    reached = aims(found)
    minutes = round((time.perf_counter() - started) / 60, 1)
    if not options.json:
        print("\n".join(map(aim_line, reached)))
        print(f"{len(found)} strangers' applications in {minutes} minutes. Simulated models.")
    return {"strangers": found, "aims": reached, "strangers_minutes": minutes, "is_simulated": True}


def run(name: str, folder: Path, port: int, budget_usd: float, *, show: bool) -> dict[str, Any]:
    """The trial of one application, in a process of its own as a user would run it."""
    models = folder / "models.toml"
    models.write_text("".join(ENTRY.format(name=n, port=port, input=i, output=o) for n, (i, o) in PRICES.items()))
    environment = os.environ | {"FIRST_TRIAL_MODELS": str(models), "PYTHONPATH": PYTHONPATH}
    code = (
        "import json, sys; from pathlib import Path; from first_trial_parts.trial import try_app; "
        "print(json.dumps(try_app(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])).as_dict()))"
    )
    command = [sys.executable, "-c", code, name, str(models), str(folder), str(budget_usd)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"app": name, "failed": [f"the process ended with {done.returncode}: {last}"], "refused": ""}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if show:
        line(found)
    return found


def line(found: dict[str, Any]) -> None:
    """Print one application's line."""
    if found["refused"]:
        print(f"{found['app']:20s} refused by check: {found['refused']}")
    else:
        print(
            f"{found['app']:20s} {found['rows']:4d} rows, {found['calls_per_s']:5.1f} calls/s, ${found['profile_usd']:.4f}, "
            f"promised {found['promised']}, served {found['served']} of {found['served_requests']}  "
            f"{'; '.join(found['failed']) or 'ok'} ({found['seconds']} s)",
            flush=True,
        )


@contextmanager
def server(seed: int, *kind: str) -> Iterator[int]:
    """The port of a local server, as long as the block runs; ``strangers`` gives it the models of that trial."""
    command = [sys.executable, "-m", "first_trial_parts.server", str(seed), *kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": PYTHONPATH}) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
