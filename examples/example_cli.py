"""The command line of the examples: profile the workflow if no trie is given, then serve requests with a plan for each."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm import Objective, Request, VineLM, Workflow
from vinelm.adapters.langgraph import build_graph
from vinelm.backends import create_backends, simulated_catalog
from vinelm.catalog import Catalog
from vinelm.errors import VineLMError
from vinelm.io import visible

Show = Callable[[Mapping[str, Any]], str]
Serve = Callable[["ServiceSettings"], int]
SIMULATED = ("sim-gemma-27b", "sim-gpt-oss-120b", "sim-sonnet")
"""The models of an offline run: a cheap, a medium and an expensive one."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults of an example.

    Args:
        coverage: fraction of the exhaustive cost to profile.
        max_error: allowed half width of the interval of the best path's accuracy (a fraction).
        max_cost_usd: bound on the average dollars of a request.
    """

    coverage: float = 0.1
    max_error: float = 0.15
    max_cost_usd: float = 0.002


@dataclass(frozen=True, slots=True)
class Flag:
    """An option without a value, such as ``--unsafe``: its name, its help, and what is called where it is given."""

    name: str
    help: str
    act: Callable[[], None]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a service needs: the routed app, the objective of requests that bring none, and the port."""

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
    flag: Flag | None = None,
    require: Callable[[], None] | None = None,
) -> int:
    """Run an example as a command.

    Without ``--models`` all models are simulated: no key, no network, no money.

    Args:
        workflow: the workflow to serve.
        spec: ``module:attribute`` of the workflow, for ``vinelm profile``.
        show: renders a final state on one line.
        argv: command-line arguments; None: those of the process.
        defaults: defaults of the options.
        serve: called with ``--port`` instead of serving requests of the dataset; adds that option.
        flag: one more option without a value.
        require: called before anything runs; raises :class:`VineLMError` if the machine lacks what the example needs.

    Returns:
        The exit code: 0 success, 1 failure, 2 bad input, 130 interrupted.
    """
    defaults = defaults or Defaults()
    parser = _parser(workflow, defaults)
    if serve is not None:
        parser.add_argument("--port", type=int, help="answer over HTTP on this port of 127.0.0.1 (0: a free one)")
    if flag is not None:
        parser.add_argument(flag.name, action="store_true", help=flag.help, dest="flag")
    options = parser.parse_args(argv)
    if flag is not None and options.flag:
        flag.act()
    try:
        if require is not None:
            require()
        vine, is_simulated = _vine(workflow, spec, options, defaults)
        app = build_graph(workflow, vine)
        if serve is not None and options.port is not None:
            return serve(ServiceSettings(workflow, vine, app, _objective(options), is_simulated, options.port))
        for request in workflow.requests[: options.limit]:
            print(visible(_line(workflow, request, *_served(workflow, vine, app, request, options), show)))
    except VineLMError as error:
        print(visible(f"error: {error}"), file=sys.stderr)
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
    parser.add_argument("--models", type=Path, help="catalog of models [default: three simulated ones]")
    parser.add_argument(
        "--trie", type=Path, help="trie file of `vinelm estimate` [default: profile now if the models are simulated]"
    )
    parser.add_argument("--limit", type=int, default=8, help="number of requests to serve [default: 8]")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated answers [default: 0]")
    cap = defaults.max_cost_usd
    parser.add_argument(
        "--max-cost-usd", type=float, default=cap, help=f"bound on the average dollars of a request [default: {cap:g}]"
    )
    parser.add_argument("--max-latency-s", type=float, help="bound on the seconds of each request")
    return parser


def _vine(workflow: Workflow, spec: str, options: argparse.Namespace, defaults: Defaults) -> tuple[VineLM, bool]:
    """The routed models with a loaded or newly estimated trie, and whether the models are simulated."""
    catalog = Catalog.from_file(options.models) if options.models else simulated_catalog().subset(SIMULATED)
    backends = create_backends(catalog, workflow=workflow, seed=options.seed)
    vine = VineLM(
        catalog,
        backends,
        template=workflow.template,
        signals=workflow.signals,
        kind=workflow.kind,
    )
    is_free = all(backend.is_simulated for backend in backends.values())
    if options.trie:
        vine.load(options.trie)
    elif is_free:
        with tempfile.TemporaryDirectory() as folder:
            vine.load(_estimated_trie(spec, catalog, Path(folder), options.seed, defaults))
    else:
        print(f"no --trie: every stage runs its default model. Profile with: vinelm profile {spec} --models {options.models}")
    if is_free:
        print("Simulated models: no figure here was measured on a real model.")
    return vine, is_free


def _objective(options: argparse.Namespace) -> Objective:
    return Objective(maximize="accuracy", max_cost_usd=options.max_cost_usd, max_latency_s=options.max_latency_s)


def _estimated_trie(spec: str, catalog: Catalog, folder: Path, seed: int, defaults: Defaults) -> Path:
    """Run ``vinelm profile`` and ``vinelm estimate`` on the simulated models; the path of the trie."""
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
    """The catalog as TOML text."""
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
    """The final state of one request, and its session (None without a trie)."""
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
