"""Real engines on loopback, each in a process and an environment of its own, and what their own counters say."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LLAMA_SERVER = HERE.parents[1] / "tests" / "kit" / "servers" / "llama_server.py"
START_S = 300.0
RAM_MIB = 8192
"""llama.cpp's default for its cache of prompts."""
VLLM_BLOCK = 32
VLLM_SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}


class Setting(NamedTuple):
    """An engine and its cache.

    Args:
        engine: "llama.cpp" or "vLLM".
        slots: Calls that it serves at a time.
        cache: MiB of llama.cpp's cache of prompts in RAM; tokens of vLLM's cache.
    """

    engine: str
    slots: int
    cache: int

    @property
    def name(self) -> str:
        """In words."""
        slots = f"{self.slots} slot{'s' * (self.slots > 1)}"
        kept = (
            f"{self.cache:,} tokens"
            if self.engine == "vLLM"
            else f"{self.cache // 1024} GiB of RAM cache"
            if self.cache
            else ""
        )
        return f"{self.engine}, {slots}" + (f", {kept}" if kept else "")


class Engine:
    """One engine, from start to end.

    Args:
        setting: Which, and how.
        python: The interpreter that has its package.
        folder: Where its model and its log are.
    """

    def __init__(self, setting: Setting, python: str, folder: Path) -> None:
        self._is_vllm = setting.engine == "vLLM"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.model = "t"
        line = (_vllm if self._is_vllm else _llama)(setting, python, folder, self.port)
        settings = os.environ | (VLLM_SETTINGS if self._is_vllm else {})
        with open(folder / "engine.log", "ab") as log:
            self._child = subprocess.Popen(
                line, stdin=subprocess.PIPE, stdout=log, stderr=log, env=settings, start_new_session=True
            )

    def __enter__(self) -> Engine:
        until_s = time.monotonic() + START_S
        while not self._answers():
            if self._child.poll() is not None or time.monotonic() > until_s:
                self.__exit__()
                sys.exit("the engine does not start: see engine.log")
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.terminate()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    @property
    def options(self) -> dict[str, Any]:
        """What is sent with each call, so that answers are eight letters."""
        return {"structured_outputs": {"regex": "[a-z]{8}"}} if self._is_vllm else {"grammar": "root ::= [a-z]{8}"}

    @property
    def names_slots(self) -> bool:
        """Whether a call may say which slot it takes."""
        return not self._is_vllm

    def counts(self) -> tuple[int, int]:
        """Tokens of prompts that it computed, and that it had in a cache."""
        text = self._get("/metrics")
        if self._is_vllm:
            asked, hit = (_number(text, rf"vllm:prefix_cache_{name}_total{{[^}}]*}}") for name in ("queries", "hits"))
            return asked - hit, hit
        return _number(text, "llamacpp:prompt_tokens_total"), _number(text, "llamacpp:prompt_tokens_cached_total")

    def _get(self, page: str) -> str:
        with urllib.request.urlopen(f"{self.url}{page}", timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    def _answers(self) -> bool:
        try:
            return bool(self._get("/health") or True)
        except OSError:
            return False


def _llama(setting: Setting, python: str, folder: Path, port: int) -> list[str]:
    model = folder / "random.gguf"
    if not model.exists():
        subprocess.run([python, str(HERE / "random_gguf.py"), str(model)], check=True)
    return [python, str(LLAMA_SERVER), str(port), str(setting.slots), str(setting.cache), str(model)]


def _vllm(setting: Setting, python: str, folder: Path, port: int) -> list[str]:
    model = folder / "tiny"
    if not (model / "config.json").exists():
        subprocess.run([python, str(HERE.parent / "live" / "tiny_model.py"), str(model)], check=True)
    return [
        *(str(Path(python).with_name("vllm")), "serve", str(model), "--served-model-name", "t"),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--dtype", "float32"),
        *("--max-model-len", "2048", "--max-num-seqs", str(setting.slots)),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
        *("--block-size", str(VLLM_BLOCK), "--num-gpu-blocks-override", str(setting.cache // VLLM_BLOCK)),
    ]


def _number(text: str, name: str) -> int:
    found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
    return int(float(found[1])) if found else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
