"""Write a small llama model of bytes with random weights: ``python random_gguf.py FILE``, with an interpreter that has gguf.

Its answers mean nothing. What is real is the engine around it: slots, caches, queues and counters.
"""

from __future__ import annotations

import sys

import gguf
import numpy as np

BYTES, WIDTH, HEADS, INNER, LAYERS, CONTEXT = 256, 64, 4, 128, 2, 16384
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def write_model(path: str) -> None:
    """Write the model."""
    model = gguf.GGUFWriter(path, "llama")
    model.add_context_length(CONTEXT)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_vocab_size(BYTES + 3)
    model.add_chat_template(TEMPLATE)
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


if __name__ == "__main__":
    write_model(sys.argv[1])
