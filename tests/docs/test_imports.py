"""What readers copy imports public names only: from a package, the front door, or a core module."""

import ast
import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {name: ROOT / name for name in ("controller", "estimator", "profiler", "traces", "workflows")}
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
CODE = re.compile(r"^ *from vinelm\S* import ", re.MULTILINE)
EXAMPLES = "vinelm.workflows.examples"
ALLOWED = {
    "vinelm.controller.planning.frontier": "check_planner.py varies a size limit to reach every branch",
    "vinelm.controller.planning.merged.evaluation": "bench_merging.py judges single plans",
    "vinelm.controller.planning.merged.graph": "bench_merging.py judges single plans",
    "vinelm.controller.planning.merged.policies": "bench_merging.py plans at single prices",
    "vinelm.traces.databases.database": "crash_profile.py kills the process between two statements",
    "vinelm.profiler.scheduling.scheduler": "crash_profile.py kills the process between a reservation and its unit",
    "vinelm.traces.databases.schema": "store_schema_doc.py writes the documentation of that very file",
    "vinelm.traces.store.judgements": "store_schema_doc.py documents its table",
    "vinelm.workflows.examples.coding": "the sandbox starts its own modules as programs; hostile_parts attacks it",
    "vinelm.workflows.nl2sql.limited_sql": "hostile_parts/sql.py attacks the limited process itself",
    "vinelm.estimator.signals.answers": "ordered_effects.py fits the model of answers without some of its effects",
    "vinelm.estimator.signals.build": "ordered_effects.py plans over such a model",
    "vinelm.estimator.signals.history_level": "ordered_effects.py asks the model what it says of single answers",
    "vinelm.estimator.signals.histories": "ordered_effects.py asks the model what it says of single answers",
    "vinelm.estimator.signals.predictive": "ordered_effects.py fits the model of answers without some of its effects",
    "vinelm.evaluation.judging.result": "evaluate_coverage.py judges as the command does, world by world",
    "vinelm.evaluation.judging.store_evaluation": "evaluate_coverage.py judges as the command does, world by world",
    "vinelm.evaluation.off_policy.steps": "evaluate_coverage.py follows policies over tables whose truth is known",
    "vinelm.evaluation.off_policy.table_walk": "evaluate_coverage.py follows policies over tables whose truth is known",
    "vinelm.evaluation.store_sweeps.switch_decision": "evaluate_coverage.py decides as the report does, world by world",
    "vinelm.profiler.sampling.priced_sampler": "evaluate_coverage.py buys rows as the default sampler does",
    "vinelm.backends.http.clients": "bench_wire.py makes bare HTTP calls over the same connections",
    "vinelm.estimator.drift.e_process": "drift_delay.py runs the tests over a thousand simulated runs at a time",
    "vinelm.estimator.drift.hypotheses": "drift_delay.py runs the tests over a thousand simulated runs at a time",
    "vinelm.estimator.drift.monitor": "drift_delay.py runs the tests over a thousand simulated runs at a time",
    "vinelm.controller.fleet.loop.order_bytes": "bench_fleet.py publishes the orders that a leader writes",
    "vinelm.controller.fleet.loop.standing_orders": "bench_fleet.py runs a process's parts over simulated time",
    "vinelm.backends.remote.rate_share": "bench_fleet.py runs a process's parts over simulated time",
    "vinelm.controller.load.slowdown": "bench_fleet.py gives simulated engines measured curves",
    "vinelm.profiler.execution.ledger": "postgres_rows.py writes rows as a profile does, without models",
    "vinelm.cli.main": "house_passes.py runs whole commands in its own process",
}
"""Modules that are no public place, with the reason why a script or an example imports them all the same."""


def sources():
    """(place, source) of every block and file."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            yield f"{page.name}, block {number}", block
    for folder in ("docs/examples", "scripts", "workflows/examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def imported(source):
    """(module, name) of each import of VineLM, those in strings of code included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.search(node.value):
            yield from imported(node.value)


def is_ours(module):
    return module.partition(".")[0] == "vinelm"


def place(module):
    """The file or folder of a module."""
    pieces = module.split(".")[1:]
    if pieces and pieces[0] in FOLDERS:
        return FOLDERS[pieces[0]].joinpath(*pieces[1:])
    return ROOT.joinpath("vinelm", *pieces)


def is_public(module, name):
    """The package hands the name on; or the module is the front door or in the core itself, or holds a contract suite."""
    if (module, name) == ("vinelm", None):  # `import vinelm`
        return True
    if place(module).is_dir():
        stub = place(module) / "__init__.pyi"
        tree = ast.parse(stub.read_text(encoding="utf-8") if stub.exists() else "")
        nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        return name in {alias.asname or alias.name for node in nodes for alias in node.names}
    return module.count(".") == 1 or module.endswith(".testing") or module.startswith(f"{EXAMPLES}.")


IMPORTS = [(place, *pair) for place, source in sources() for pair in imported(source)]
"""(place, module, name)."""


def test_imports_are_public():
    found = [
        f"{place}: from {module} import {name}"
        for place, module, name in IMPORTS
        if not is_public(module, name) and not {module, f"{module}.{name}"} & set(ALLOWED)
    ]
    assert not found, "\n".join(found)


def test_imported_names_exist():
    lacking = []
    for place, module, name in IMPORTS:
        try:
            if not hasattr(import_module(module), name or "__name__"):
                import_module(f"{module}.{name}")
        except ImportError as error:
            lacking.append(f"{place}: {error}")
    assert not lacking, "\n".join(lacking)


def test_no_exception_is_left_over():
    assert set(ALLOWED) <= {module for _, module, _ in IMPORTS} | {f"{module}.{name}" for _, module, name in IMPORTS}
