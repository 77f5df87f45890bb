"""DFlash heads, DFlash2's and DSpark's included: llama_model_dflash of llama-cpp-python 0.3.36."""

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import Reasons, head_sizes, tensor, width
from backends.llamacpp.head_checks.tapped_layers import tapped_layers

_MASK = "tokenizer.ggml.mask_token_id"


def dflash_check(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against a DFlash head for a model."""
    if width(head) != width(target):
        yield f"it is for models of width {width(head):,}, and this one's is {width(target):,}"
    yield from tapped_layers(head, target)
    if head.integer("block_size") < 2:
        yield "it does not say how many tokens it drafts at once"
    mask = head.metadata.get(_MASK)
    if type(mask) is not int or not 0 <= mask < head.n_vocab:
        yield "it does not say which token stands for those to be drafted"
    key_size, value_size = head_sizes(head)
    if key_size != value_size:
        yield f"its keys have {key_size:,} numbers and its values {value_size:,}"
    if tensor(head, "selector_hidden.weight") is not None:
        yield from _selector(head)
    if head.integer("hyper_connection.count"):
        yield "its layers are those of DeepSeek V4, which are not supported"


def _selector(head: GgufHeader) -> Reasons:
    """Reasons against what selects among the candidates of each place."""
    count = head.integer("selector_top_k")
    if not 0 < count <= head.n_vocab or count * (count + 1) > width(head):
        yield f"it selects among {count:,} tokens of each place"
    if tensor(head, "markov_w1.weight") is not None:
        yield "it joins its tokens in two ways"
