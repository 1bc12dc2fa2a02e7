"""What is known of each model: its shape, and from it parameters, weights and KV bytes a token.

The shapes are those of the models' published `config.json` files; parameters and bytes are computed from the
shape (a test holds the sums to the published parameter counts), so no figure is written twice.
"""

from dataclasses import dataclass

from tokenweir.facts.names import UnknownFactError, canonical

PRECISIONS = ("fp16", "fp8", "int4")

_PRECISION_ALIASES = {
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bf16": "fp16",
    "bfloat16": "fp16",
    "auto": "fp16",
    "fp8": "fp8",
    "int8": "fp8",
    "int4": "int4",
    "awq": "int4",
    "gptq": "int4",
}

# Bytes a weight of a linear layer. int4: 4 bits and a 16-bit scale and 4-bit zero for each group of 128 (AWQ,
# GPTQ).
_BYTES = {"fp16": 2.0, "fp8": 1.0, "int4": 0.5 + 2.5 / 128}


def precision(name: str) -> str:
    """One of PRECISIONS for any usual spelling (bf16 counts as fp16: same bytes, same rate). Raises
    UnknownFactError."""
    try:
        return _PRECISION_ALIASES[name.strip().lower()]
    except KeyError:
        raise UnknownFactError("precision", name, _PRECISION_ALIASES) from None


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder-only transformer by its shape."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    """Longest context that the model was trained for, tokens."""
    tied: bool = False
    """The output layer shares the embedding's weights."""
    gated: bool = True
    """Gated feed-forward (three matrices instead of two)."""

    @property
    def layer_parameters(self) -> int:
        """Weights of all layers' matrices: what every token of a step is multiplied with."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + (3 if self.gated else 2) * self.hidden * self.ffn)

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding (and, of the same size, of the output layer)."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All weights, norms included."""
        norms = self.hidden * (2 * self.layers + 1)
        return self.layer_parameters + self.embedding_parameters * (1 if self.tied else 2) + norms

    @property
    def kv_bytes_per_token(self) -> int:
        """2 x layers x kv heads x head dimension x 2 bytes (keys and values in 16 bits)."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2

    def weights_gb(self, precision_name: str = "fp16") -> float:
        """Memory of the weights in 1e9 bytes. Embedding and output layer stay in 16 bits, as the usual
        quantisers leave them."""
        size = _BYTES[precision(precision_name)]
        embedding = self.embedding_parameters * (1 if self.tied else 2)
        return (self.layer_parameters * size + embedding * 2) / 1e9

    def read_gb(self, precision_name: str = "fp16") -> float:
        """Weights read for one step in 1e9 bytes: all layers and the output layer, not the embedding
        table."""
        size = _BYTES[precision(precision_name)]
        return (self.layer_parameters * size + self.embedding_parameters * 2) / 1e9


_MODELS = {
    model.name: model
    for model in (
        Model("llama-2-7b", 32, 4096, 11008, 32, 32, 128, 32000, 4096),
        Model("llama-2-13b", 40, 5120, 13824, 40, 40, 128, 32000, 4096),
        Model("llama-2-70b", 80, 8192, 28672, 64, 8, 128, 32000, 4096),
        Model("llama-3-8b", 32, 4096, 14336, 32, 8, 128, 128256, 8192),
        Model("llama-3-70b", 80, 8192, 28672, 64, 8, 128, 128256, 8192),
        Model("llama-3.1-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072),
        Model("llama-3.1-70b", 80, 8192, 28672, 64, 8, 128, 128256, 131072),
        Model("llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128256, 131072, tied=True),
        Model("llama-3.2-3b", 28, 3072, 8192, 24, 8, 128, 128256, 131072, tied=True),
        Model("mistral-7b", 32, 4096, 14336, 32, 8, 128, 32000, 32768),
        Model("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 64, 151936, 32768, tied=True),
        Model("qwen2.5-7b", 28, 3584, 18944, 28, 4, 128, 152064, 32768),
        Model("qwen2.5-14b", 48, 5120, 13824, 40, 8, 128, 152064, 32768),
        Model("qwen2.5-32b", 64, 5120, 27648, 40, 8, 128, 152064, 32768),
        Model("qwen2.5-72b", 80, 8192, 29568, 64, 8, 128, 152064, 32768),
        Model("qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, 40960),
        Model("gemma-3-270m", 18, 640, 2048, 4, 1, 256, 262144, 32768, tied=True),
        Model("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, tied=True),
        Model("gpt-3-175b", 96, 12288, 49152, 96, 96, 128, 50257, 2048, tied=True, gated=False),
    )
}

MODEL_NAMES = tuple(_MODELS)

_BY_CANONICAL = {canonical(name): model for name, model in _MODELS.items()}
# Longest first, so that `llama-3.1-8b` is not taken for a shorter name that it begins with.
_PREFIXES = sorted(_BY_CANONICAL, key=len, reverse=True)


def model(name: str) -> Model:
    """The facts of a model by any usual spelling: an organisation before it and a suffix such as `-Instruct`
    or `-chat-hf` do no harm (`meta-llama/Llama-3.1-8B-Instruct`, `Meta-Llama-3-8B`). Raises UnknownFactError,
    which lists the known models."""
    key = canonical(name.rsplit("/", 1)[-1]).removeprefix("meta-")
    for prefix in _PREFIXES:
        if key == prefix or key.startswith(prefix + "-"):
            return _BY_CANONICAL[prefix]
    raise UnknownFactError("model", name, MODEL_NAMES)
