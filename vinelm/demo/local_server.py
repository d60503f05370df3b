"""The process that serves the models of ``vinelm demo --real``, with one llama.cpp server per model.

The servers are reachable only from this machine. ``python -m vinelm.demo.local_server FILE ...`` prints their addresses
as JSON, and ends when its standard input closes. It imports xllamacpp, which belongs to the extra ``real``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from vinelm.io.operating_system import die_with_parent

CONTEXT = 512
"""Tokens of a prompt and its answer."""


def served(path: str) -> Any:
    """Return a running llama.cpp server for a GGUF file, on a free port of the loopback interface."""
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path, given.hostnames, given.port = path, ["127.0.0.1"], 0
    given.n_ctx, given.n_parallel, given.cache_ram_mib, given.verbosity = CONTEXT, 1, 0, -1
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1  # more threads than idle cores are far slower than one
    given.chat_template, given.use_jinja = "{% for m in messages %}{{ m['content'] }}{% endfor %}", True  # prompts are few-shot
    return xllamacpp.Server(given)


def main(paths: Sequence[str]) -> None:
    """Serve the GGUF files at these paths until the parent process ends."""
    die_with_parent()
    servers = [served(path) for path in paths]
    print(json.dumps([server.listening_address for server in servers]), flush=True)
    sys.stdin.read()
    os._exit(0)  # the servers' own threads need no cleanup


if __name__ == "__main__":
    main(sys.argv[1:])
