"""Layers of a model whose inputs a head reads."""

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import Reasons, trunk_layers

TAPPED = frozenset(
    (
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan_vl", "lfm2", "lfm2moe", "llama",
        "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h",
        "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp",
    )
)  # fmt: skip
"""Architectures whose graphs keep the inputs of layers; others abort (llm_graph_result)."""

_TAPPED_AFTER_LAST = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
"""Those that keep what leaves the last layer too, as the input of a layer after it."""


def tapped_layers(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against the layers that a head reads."""
    layers = head.integers("target_layers")
    if not layers:
        yield "it does not say which layers of a model it reads"
    if target.architecture not in TAPPED:
        yield f"llama.cpp does not hand out the layers of {target.architecture} models"
    most = trunk_layers(target) - (target.architecture not in _TAPPED_AFTER_LAST)
    for layer in layers:
        if not 0 <= layer <= most:
            yield f"it reads layer {layer:,} of a model whose last one to be read is {most:,}"
