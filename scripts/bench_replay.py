"""Processor seconds and peak memory of ``vinelm replay --dry-run`` on a simulated trace of each form.

    python scripts/bench_replay.py --calls 100000 --results results/replay.json

Each trace is written to a temporary folder by `simulated_traces.py` and read in a process of its own. Seconds are those of the
processor for `bill_of`, imports left out; the peak is that of the whole process, Python and VineLM included. A user's message
has 60 words, so that a call takes 1.2 to 2.2 kB as JSON lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import simulated_traces
from studies import Options, study, table

FILES = {
    "Langfuse, JSON lines": ("langfuse", "jsonl"),
    "Langfuse, JSON lines, gzip": ("langfuse", "jsonl.gz"),
    "Langfuse, JSON array": ("langfuse", "json"),
    "Langfuse, CSV": ("langfuse", "csv"),
    "Langfuse, Parquet": ("langfuse", "parquet"),
    "LangSmith, JSON lines": ("langsmith", "jsonl"),
    "LangSmith, Parquet": ("langsmith", "parquet"),
    "OpenTelemetry, OTLP lines": ("otel", "jsonl"),
    "OpenTelemetry, OTLP array": ("otel", "json"),
    "OpenInference, OTLP lines": ("openinference", "jsonl"),
    "OpenAI, JSON lines": ("openai", "jsonl"),
    "LiteLLM, JSON lines": ("litellm", "jsonl"),
}
READ = """
import json, resource, sys, time
from pathlib import Path
from vinelm.replay import bill_of
began_s = time.process_time()
found = bill_of(sys.argv[1])
seconds = time.process_time() - began_s
status = Path("/proc/self/status")
if status.exists():  # on Linux the other figure includes the process that started this one
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 2**10
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
calls = {"calls": found.reading.calls, "broken": found.reading.broken, "usd": found.cost_usd}
print(json.dumps({**calls, "seconds": seconds, "peak_mb": peak}))
"""


def measure(options: Options) -> dict[str, Any]:
    """Write and read each trace."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (form, suffix) in FILES.items():
            path = Path(folder) / f"trace.{suffix}"
            simulated_traces.write(path, form, simulated_traces.made(options.calls, seed=options.seed))
            done = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            rows.append({"trace": name, "mb": path.stat().st_size / 1e6, **found, "per_s": found["calls"] / found["seconds"]})
            path.unlink()
            options.say(f"{name}: {found['seconds']:.1f} s, {found['peak_mb']:.0f} MB")
    return {"calls": options.calls, "traces": rows}


def lines(found: dict[str, Any]) -> list[str]:
    """The table."""
    columns = {
        "trace": "{trace}",
        "MB": "{mb:.0f}",
        "calls": "{calls:,}",
        "broken": "{broken}",
        "seconds": "{seconds:.1f}",
        "calls/s": "{per_s:,.0f}",
        "peak MB": "{peak_mb:.0f}",
    }
    return list(table(found["traces"], columns))


if __name__ == "__main__":
    sys.exit(
        study(__doc__, {"--calls": (100_000, "calls of each trace"), "--seed": (0, "of the simulated calls")}, measure, lines)
    )
