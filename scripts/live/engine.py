"""A real OpenAI-compatible engine on loopback: ``transformers serve`` on a tiny random model, in an environment of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PACKAGES = ("torch==2.13.0", "transformers[serving]")
START_S = 180.0


def prepare(folder, python=None):
    """(executable of the engine's Python, folder of the model), made where they are not there. Installs packages."""
    model, venv = folder / "model", folder / "venv"
    if python is None:
        python = venv / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    if not (model / "config.json").exists():
        script = Path(__file__).with_name("tiny_model.py")
        subprocess.run([python, script, model], check=True, env=_offline())
    return Path(python), model.resolve()


class Engine:
    """The server as a child process in a group of its own. ``url`` is its OpenAI endpoint."""

    def __init__(self, python, log, port=None):
        self.port = port or _free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._python, self._log = python, log
        self._child = None

    def start(self):
        """Start it and wait until it answers."""
        serve = self._python.with_name("transformers")
        with open(self._log, "ab") as log:
            self._child = subprocess.Popen(
                [serve, "serve", "--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu"],
                stdout=log,
                stderr=log,
                env=_offline(),
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._child.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise SystemExit(f"the engine does not start: see {self._log}")
            time.sleep(0.5)
        return self

    def kill(self):
        """``kill -9`` of its process group."""
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def warm_up(self, model):
        """One call by hand: the engine loads a model when it is first asked for."""
        body = {"model": str(model), "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "stream": False}
        asked = urllib.request.Request(
            f"{self.url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=START_S) as answer:
            return json.load(answer)

    def _answers(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                return True
        except OSError:
            return False


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _offline():
    return {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
