"""The first trial of a new user: fourteen applications as people write them, against a local OpenAI-compatible server.

    python scripts/first_trial.py                      # a table
    python scripts/first_trial.py --json               # one object
    python scripts/first_trial.py --apps agent,rag     # some of them

Each is checked, profiled under a budget through the real client at the defaults, estimated, planned and asked 60 requests that
were not profiled. The server is a process of its own on the loopback interface; its answers depend on the prompt and the seed
alone. Exit code 1 if anything failed or was refused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    parser.add_argument("--apps", default=",".join(APPS), help="names, separated by commas")
    parser.add_argument("--budget-usd", type=float, default=0.03, help="dollars for each profile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for stores, tries and tracebacks")
    options = parser.parse_args()
    names = options.apps.split(",")
    unknown = sorted(set(names) - set(APPS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}: there are {', '.join(APPS)}")
    with tempfile.TemporaryDirectory() as temporary, server(options.seed) as port:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = [run(name, folder, port, options.budget_usd, show=not options.json) for name in names]
    refused = [one["app"] for one in found if one["refused"]]
    failed = [one["app"] for one in found if one["failed"]] + refused
    if options.json:
        print(json.dumps({"apps": found, "refused": len(refused), "failed": failed}, indent=1))
    else:
        print(f"{len(found)} applications, {len(failed)} failed, {len(refused)} of them refused by check")
    return 1 if failed else 0


def run(name: str, folder: Path, port: int, budget_usd: float, *, show: bool) -> dict:
    """The trial of one application, in a process of its own as a user would run it."""
    models = folder / "models.toml"
    models.write_text("".join(ENTRY.format(name=n, port=port, input=i, output=o) for n, (i, o) in PRICES.items()))
    here = str(Path(__file__).parent)
    environment = os.environ | {"FIRST_TRIAL_MODELS": str(models), "PYTHONPATH": here}
    code = (
        "import json, sys; from pathlib import Path; from first_trial_parts.trial import try_app; "
        "print(json.dumps(try_app(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])).as_dict()))"
    )
    command = [sys.executable, "-c", code, name, str(models), str(folder), str(budget_usd)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"app": name, "failed": [f"the process ended with {done.returncode}: {last}"], "refused": ""}
    found: dict = json.loads(done.stdout.splitlines()[-1])
    if show:
        line(found)
    return found


def line(found: dict) -> None:
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
def server(seed: int) -> Iterator[int]:
    """The port of a local server, as long as the block runs."""
    here = str(Path(__file__).parent)
    command = [sys.executable, "-m", "first_trial_parts.server", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": here}) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
