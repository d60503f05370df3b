"""One of several runs of the toy on one store in PostgreSQL, in a process of its own.

python -m kit.toys.shared_process ADDRESS SEED COVERAGE SLEEP_S LEASE_S [SKEW_S]: its clock is SKEW_S seconds wrong. Prints
"started" before its first call, and its result at the end.
"""

import json
import sys
import threading
import time

from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy
from vinelm.errors import VineLMError
from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.traces.store import shared_run


def set_clock(skew_s):
    """Let the clock of this process be wrong; what measures durations is right on every machine."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + skew_s
    time.time_ns = lambda: real_ns() + int(skew_s * 1e9)


def main(address, seed, coverage, sleep_s, lease_s, skew_s="0"):
    if float(skew_s):
        set_clock(float(skew_s))
    shared_run.LEASE_S = float(lease_s)
    first = threading.Lock()  # never released: of the threads of this run one says it

    def before(_request, _prefix):
        if first.acquire(blocking=False):
            print("started", flush=True)
        time.sleep(float(sleep_s))

    backend = ToyBackend(before)
    workflow = toy(n_requests=12, n_models=3)
    execution = ExecutionConfig(isolation="thread", workers=3)
    try:
        with new_store(address, workflow, backend) as store:
            result = profile(
                workflow, catalog_for(workflow), {"test": backend}, store,
                ProfileSettings(coverage=float(coverage), seed=int(seed), execution=execution),
            )  # fmt: skip
    except VineLMError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    facts = {"executed": result.executed, "stopped_by": result.stopped_by, "calls": len(backend.calls)}
    print(json.dumps({**facts, "abandoned": result.abandoned}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
