"""A small Llama with random weights for a real vLLM: `python tiny_llama.py FOLDER`, by vLLM's own Python.

Its tokenizer is trained on this repository's pages; weights are vLLM's dummies (`--load-format dummy`):
nothing is downloaded. What it says is nonsense, at the lengths that are asked for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parents[3]
BEGIN, END = "<s>", "</s>"
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def tokenizer() -> Any:
    """Byte-level BPE of 4,096 tokens at most."""
    bytes_of = pre_tokenizers.ByteLevel
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = bytes_of(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096, special_tokens=[BEGIN, END], initial_alphabet=bytes_of.alphabet()
    )
    made.train_from_iterator([page.read_text() for page in (ROOT / "docs").glob("*.md")], trainer)
    return made


def main() -> None:
    """Write the folder that `vllm serve` is given."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN,
            "eos_token": END,
            "chat_template": TEMPLATE,
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 256,
            "intermediate_size": 688,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "vocab_size": made.get_vocab_size(),
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "bos_token_id": 0,
            "eos_token_id": 1,
            "torch_dtype": "float32",
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


if __name__ == "__main__":
    main()
