"""A run of the toy on one store, in a process of its own.

python -m kit.toys.profiling_process ADDRESS SLEEP_S: prints "started" before its first call, and its result at the end.
"""

import json
import sys
import threading
import time

from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy
from vinelm.errors import VineLMError
from vinelm.profiler import ExecutionConfig, ProfileSettings, profile


def main(address, sleep_s):
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
            settings = ProfileSettings(coverage=1.0, execution=execution)
            result = profile(workflow, catalog_for(workflow), {"test": backend}, store, settings)
    except VineLMError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    facts = {"executed": result.executed, "stopped_by": result.stopped_by, "calls": len(backend.calls)}
    print(json.dumps({**facts, "abandoned": result.abandoned}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
