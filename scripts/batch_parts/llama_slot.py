"""A real engine with one slot: llama.cpp over a small random model, asked by JSON lines on standard input.

Runs with an interpreter that has xllamacpp, gguf and numpy; imports nothing of this repository. A line is
``[[token, ...], n]``; the answer is ``[tokens that were computed of the prompt, [the n tokens that followed]]``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

BYTES, WIDTH, HEADS, INNER, LAYERS, CONTEXT = 256, 64, 4, 128, 2, 16384


def write_model(path: Path) -> None:
    """Write a model of bytes with random weights."""
    model = gguf.GGUFWriter(str(path), "llama")
    model.add_context_length(CONTEXT)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_vocab_size(BYTES + 3)
    model.add_tokenizer_model("llama")
    model.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(BYTES))])
    model.add_token_scores([0.0] * (BYTES + 3))
    model.add_token_types([2, 3, 3] + [6] * BYTES)
    rng, sizes = np.random.default_rng(0), {"token_embd": (BYTES + 3, WIDTH), "output": (BYTES + 3, WIDTH)}
    for layer in range(LAYERS):
        sizes |= {f"blk.{layer}.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        sizes |= {f"blk.{layer}.ffn_{name}": (INNER, WIDTH) for name in ("gate", "up")}
        sizes[f"blk.{layer}.ffn_down"] = (WIDTH, INNER)
    for name, size in sizes.items():
        model.add_tensor(f"{name}.weight", (rng.standard_normal(size) * 0.05).astype(np.float32))
    for name in ("output_norm", *(f"blk.{layer}.{part}_norm" for layer in range(LAYERS) for part in ("attn", "ffn"))):
        model.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


def main() -> None:
    """Answer until the input ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        write_model(path)
        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.n_parallel, settings.n_ctx = 1, CONTEXT
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        settings.cache_ram_mib, settings.n_ctx_checkpoints = 0, 0  # nothing but the slot
        server = xllamacpp.Server(settings)
        for line in sys.stdin:
            tokens, count = json.loads(line)
            asked = {
                "prompt": tokens,
                "n_predict": count,
                "cache_prompt": True,
                "temperature": 0,
                "ignore_eos": True,
                "logprobs": 1,
            }
            told = server.handle_completions(asked)
            told = json.loads(told) if isinstance(told, str) else told
            if "timings" not in told:
                sys.exit(f"the engine refused a call: {str(told)[:500]}")
            said = [one["id"] for one in told["choices"][0]["logprobs"]["content"]]
            print(json.dumps([told["timings"]["prompt_n"], said]), flush=True)
    os._exit(0)  # the server's own threads need no farewell


if __name__ == "__main__":
    main()
