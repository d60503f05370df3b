"""A unit forked with the real SDK of a provider finds everything imported and built: counted, not timed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.toys.sdk import load
from kit.wire import openai_format
from kit.wire.server import WireServer

from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.traces import ObservationStore

A_HANDFUL = 5
TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server():
    server = WireServer().answers(openai_format.answering('{"answer": "four"}'))
    yield server
    server.stop()


@pytest.mark.parametrize("way", ["plain", "async", "structured"])
def test_a_forked_unit_imports_nothing_and_reads_no_certificates(tmp_path, server, way):
    arguments = {"url": server.url, "notes": str(tmp_path), "way": way}
    loaded = load(**arguments)
    execution = ExecutionConfig(isolation="process", source=WorkflowSource(function="kit.toys.sdk:load", arguments=arguments))
    with ObservationStore.create(tmp_path / "s.db", store_identity(loaded.workflow, loaded.catalog, loaded.backends)) as store:
        profile(loaded.workflow, loaded.catalog, loaded.backends, store, ProfileSettings(execution=execution))
        (row,) = store.observations()
    assert row.failure is None
    (note,) = tmp_path.glob("*.json")
    own = json.loads(note.read_text())
    assert len(own["modules"]) <= A_HANDFUL, own["modules"]
    assert own["tls_contexts"] == 0


def test_nothing_is_traced_or_started_ahead_of_the_fork(server, tmp_path):
    """With LangSmith's tracing on, a rehearsal or trial graph would start its threads in the process that forks."""
    code = f"""
import sys, threading
sys.path[:0] = [{str(TESTS)!r}]
from kit.toys.sdk import load
from vinelm.profiler.isolation.fork_server import preload
loaded = load({server.url!r}, {str(tmp_path)!r})
preload(loaded.backends.values())
print(threading.active_count())
"""
    environment = {**os.environ, "LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "none", "LANGSMITH_ENDPOINT": server.url}
    n_asked = len(server.asked)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert len(server.asked) == n_asked
