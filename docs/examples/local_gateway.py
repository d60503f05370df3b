"""A gateway on this machine, before a server that answers as a page tells it to (``stand_in``): ``url`` is its address.

Importing it starts both. The gateway writes calls to ``calls.jsonl``, and ends with this process.
"""

import atexit
import os
import subprocess
from pathlib import Path

import stand_in

_ENTRY = """\
[[model]]
name = "{name}"
provider = "openai"
model = "{name}"
api_base = "{base}"
price = {{ input = {input}, output = {output}, source = "made up", as_of = 2026-01-01 }}
"""
_base = os.environ["OPENAI_BASE_URL"]
_models = [("gpt-5", 1.25, 10.0), ("gpt-5-nano", 0.05, 0.4)]
Path("stand_in.toml").write_text(
    "\n".join(_ENTRY.format(name=name, base=_base, input=dollars, output=out) for name, dollars, out in _models)
)
_gateway = subprocess.Popen(
    ["vinelm", "gateway", "--models", "stand_in.toml", "--port", "0"],
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, "PYTHONUNBUFFERED": "1"},
)
atexit.register(_gateway.wait)
atexit.register(_gateway.terminate)
assert _gateway.stdout is not None
url = next(word for word in _gateway.stdout.readline().split() if word.startswith("http"))
says = stand_in.says
