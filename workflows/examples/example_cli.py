"""The command line that the examples share: learn what the models can do, then serve requests with a plan for each."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm import Objective, VineLM
from vinelm.adapters.langgraph import build_graph
from vinelm.backends import create_backends, simulated_catalog
from vinelm.catalog import Catalog
from vinelm.errors import VineLMError
from vinelm.workflow import Request, Workflow

Show = Callable[[Mapping[str, Any]], str]
Serve = Callable[["ServedAnswer"], int]
SIMULATED = ("sim-gemma-27b", "sim-gpt-oss-120b", "sim-sonnet")
"""The models of an offline run: one cheap, one in between, one dear."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """How an example learns and serves where nothing else is said.

    ``coverage`` is the share profiled of what running everything once would cost, ``max_error`` how well the best path's
    accuracy must be known after it (half of its interval), ``max_cost_usd`` the average dollars of a request.
    """

    coverage: float = 0.1
    max_error: float = 0.15
    max_cost_usd: float = 0.002


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """What a service needs: the routed app, its objective unless a request brings one, and where to listen."""

    workflow: Workflow
    vine: VineLM
    app: Any
    objective: Objective
    is_simulated: bool
    port: int


def run(
    workflow: Workflow,
    spec: str,
    show: Show,
    argv: list[str] | None = None,
    *,
    defaults: Defaults | None = None,
    serve: Serve | None = None,
) -> int:
    """The example as a command. Exit codes as everywhere: 0 done, 1 failed, 2 bad input.

    Without ``--models`` everything is simulated: no key, no network, no money. ``spec`` names the workflow to
    ``vinelm profile``. With ``serve`` there is an option ``--port``: it is called in place of serving the dataset's requests.
    """
    defaults = defaults or Defaults()
    parser = _parser(workflow, defaults)
    if serve is not None:
        parser.add_argument("--port", type=int, help="answer over HTTP on this port of 127.0.0.1 (0: a free one)")
    options = parser.parse_args(argv)
    try:
        vine, is_simulated = _vine(workflow, spec, options, defaults)
        app = build_graph(workflow, vine)
        if serve is not None and options.port is not None:
            return serve(ServedAnswer(workflow, vine, app, _objective(options), is_simulated, options.port))
        for request in workflow.requests[: options.limit]:
            print(_line(workflow, request, *_served(workflow, vine, app, request, options), show))
    except VineLMError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd[2:5])} failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _parser(workflow: Workflow, defaults: Defaults) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=f"{workflow.name}: serve requests, routed by VineLM.")
    parser.add_argument("--models", type=Path, help="catalog of models; left out: three simulated ones")
    parser.add_argument("--trie", type=Path, help="what `vinelm estimate` wrote; left out: learned now, where that is free")
    parser.add_argument("--limit", type=int, default=8, help="requests to serve [8]")
    parser.add_argument("--seed", type=int, default=0, help="decides simulated answers [0]")
    cap = defaults.max_cost_usd
    parser.add_argument("--max-cost-usd", type=float, default=cap, help=f"average dollars of a request [{cap:g}]")
    parser.add_argument("--max-latency-s", type=float, help="seconds of each request")
    return parser


def _vine(workflow: Workflow, spec: str, options: argparse.Namespace, defaults: Defaults) -> tuple[VineLM, bool]:
    """With the trie that was named or learned; and whether its models are simulated."""
    catalog = Catalog.from_file(options.models) if options.models else simulated_catalog().subset(SIMULATED)
    backends = create_backends(catalog, workflow=workflow, seed=options.seed)
    vine = VineLM(catalog, backends, template=workflow.template)
    is_free = all(backend.is_simulated for backend in backends.values())
    if options.trie:
        vine.load(options.trie)
    elif is_free:
        with tempfile.TemporaryDirectory() as folder:
            vine.load(_learned(spec, catalog, Path(folder), options.seed, defaults))
    else:
        print(f"no --trie: every stage runs its default model. Learn with: vinelm profile {spec} --models {options.models}")
    if is_free:
        print("Simulated models: nothing here was measured on a real one.")
    return vine, is_free


def _objective(options: argparse.Namespace) -> Objective:
    return Objective(maximize="accuracy", max_cost_usd=options.max_cost_usd, max_latency_s=options.max_latency_s)


def _learned(spec: str, catalog: Catalog, folder: Path, seed: int, defaults: Defaults) -> Path:
    """The trie that ``vinelm profile`` and ``vinelm estimate`` make of the simulated models, on this very machine."""
    models, store, trie = folder / "models.toml", folder / "example.db", folder / "example.vine"
    models.write_text(_toml(catalog), encoding="utf-8")
    profile = ["profile", spec, "--models", str(models), "--store", str(store)]
    profile += ["--coverage", str(defaults.coverage), "--seed", str(seed)]
    estimate = ["estimate", str(store), "-o", str(trie), "--max-error", str(defaults.max_error)]
    for arguments in (profile, estimate):
        print("$ vinelm " + " ".join(arguments).replace(f"{folder}/", ""))
        command = [sys.executable, "-m", "vinelm.cli.main", *arguments, "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return trie


def _toml(catalog: Catalog) -> str:
    """A catalog file of simulated models."""
    lines = []
    for model in catalog.models:
        price = model.price
        lines += ["[[model]]", f'name = "{model.name}"', f'provider = "{model.provider}"', f'model = "{model.model_id}"']
        lines += [f'engine = "{model.engine}"']
        lines += [f'price = {{ input = {price.input}, output = {price.output}, source = "simulated", as_of = {price.as_of} }}']
    return "\n".join(lines) + "\n"


def _served(
    workflow: Workflow, vine: VineLM, app: Any, request: Request, options: argparse.Namespace
) -> tuple[Mapping[str, Any], Any]:
    """The final state of one request, and the policy that planned it (None where there is nothing to plan with)."""
    objective = _objective(options)
    session = None if vine.planner is None else vine.session(objective, request=request)
    state = app.invoke(workflow.graph_input(request), context=vine.context(objective, policy=session, request=request))
    return state, session


def _line(workflow: Workflow, request: Request, state: Mapping[str, Any], session: Any, show: Show) -> str:
    mark = "right" if workflow.score(request, state) else "wrong"
    head = f"{request.id:>16}  {mark}  {show(state)[:80]}"
    if session is None:
        return head
    path = max((done.prefix for done in session.invocations), key=len, default=())
    return f"{head}\n{'':>16}  {' > '.join(path)}  ${session.spent_usd:.5f}  {session.clock.now() - session.started_at:.1f} s"
