"""Write a tiny, randomly initialised Qwen3 model and a tokenizer trained on local text into a folder. No download.

Run by the engine's own Python (transformers, tokenizers, torch): ``python tiny_model.py FOLDER``. Its answers are noise; what
is real is the engine around it: tokens, streams, queues, clocks. So that answers end, a twentieth of the vocabulary ends one.
"""

import sys
from pathlib import Path

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
VOCABULARY = 2048


def tokenizer(texts):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=MARKS, initial_alphabet=alphabet)
    bpe.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<|pad|>", eos_token="<|end|>")
    wrapped.chat_template = TEMPLATE
    return wrapped


def main(folder):
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    here = Path(__file__).resolve()
    words = tokenizer(path.read_text(encoding="utf-8") for path in sorted(here.parents[2].glob("**/*.md"))[:50])
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the least that vLLM has on a CPU
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    ends = [words.eos_token_id, *range(300, len(words), 20)]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=words.pad_token_id, do_sample=True)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    print(f"{sum(weights.numel() for weights in model.parameters()):,} parameters, {len(words):,} tokens -> {folder}")


if __name__ == "__main__":
    main(sys.argv[1])
