"""A model that counts: whatever is asked, it answers "1 2 3 4 …" and never ends by itself.

How much of an answer was shown, saved or lost can be told from the answer alone. Its layers change
nothing, and are as large as is needed for the speed that is wanted.

Usage: python -m scripts.models.counting_model FILE [--feed-forward N] [--layers N]
"""

import argparse
from pathlib import Path

import gguf
import numpy as np

HIGHEST = 1500
"""After this number it begins anew."""

_WIDTH = 256
_CONTEXT = 8192
_TEMPLATE = "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}assistant:"


def make(path: Path, feed_forward: int = 64, layers: int = 2, *, has_template: bool = True) -> Path:
    """Write the model. 4,096 and 3 layers make about 200 tokens a second on one core.

    has_template: whether a chat template comes with it, which takes a process for each prompt.
    """
    tokens, kinds = _vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("counting")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(layers)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(4)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(_WIDTH // 4)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if has_template:
        writer.add_chat_template(_TEMPLATE)
    _add_weights(writer, len(tokens), feed_forward, layers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def numbers(text: str) -> list[int]:
    """How far a text counts: its numbers, as long as each follows the one before.

    Raises:
        ValueError: it is no answer of this model.
    """
    words = text.split()
    counted = [1 + place % HIGHEST for place in range(len(words))]
    for place, number in enumerate(counted):
        if words[place] != str(number):
            hole = " ".join(words[max(0, place - 2) : place + 3])
            raise ValueError(f"does not count: {hole}")
    return counted


def _vocabulary() -> tuple[list[bytes], list[gguf.TokenType]]:
    control = [b"<unk>", b"<s>", b"</s>"]
    raw = [f"<0x{byte:02X}>".encode() for byte in range(256)]
    plain = ["\u2581".encode(), *(bytes([code]) for code in range(33, 127))]
    counted = [f"\u2581{number}".encode() for number in range(1, HIGHEST + 1)]
    kinds = [gguf.TokenType.CONTROL] * len(control) + [gguf.TokenType.BYTE] * len(raw)
    kinds += [gguf.TokenType.NORMAL] * (len(plain) + len(counted))
    return [*control, *raw, *plain, *counted], kinds


def _add_weights(writer: gguf.GGUFWriter, n_vocab: int, feed_forward: int, layers: int) -> None:
    """Each number's output is the embedding of the one before; all else is followed by 1."""
    random = np.random.default_rng(0)
    first = n_vocab - HIGHEST
    embeddings = random.choice(np.array([-1.0, 1.0], np.float32), (n_vocab, _WIDTH))
    embeddings[:first] = embeddings[0]
    output = np.zeros_like(embeddings)
    output[first + 1 :] = embeddings[first:-1]
    output[first] = embeddings[0] + embeddings[-1]
    ones = np.ones(_WIDTH, np.float32)
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", output * np.float32(0.25))
    shapes = {
        "attn_q": (_WIDTH, _WIDTH),
        "attn_k": (_WIDTH // 4, _WIDTH),
        "attn_v": (_WIDTH // 4, _WIDTH),
        "attn_output": (_WIDTH, _WIDTH),
        "ffn_gate": (feed_forward, _WIDTH),
        "ffn_up": (feed_forward, _WIDTH),
        "ffn_down": (_WIDTH, feed_forward),
    }
    for layer in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
        for name, shape in shapes.items():
            is_silent = name in ("attn_output", "ffn_down")
            scale = 0.0 if is_silent else 0.05
            values = scale * random.standard_normal(shape, np.float32)
            writer.add_tensor(f"blk.{layer}.{name}.weight", values.astype(np.float32))


def main() -> None:
    """Write the model that the arguments describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--feed-forward", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    given = parser.parse_args()
    make(given.file, given.feed_forward, given.layers)


if __name__ == "__main__":
    main()
