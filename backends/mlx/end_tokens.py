"""Which tokens end a reply, by their names: not every model's settings tell all of them.

The names are those at which llama.cpp ends (llama-vocab.cpp), so that both backends do at the same.
"""

from collections.abc import Mapping, Set

_ENDS = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>",
     "<|flush|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "</s>",
     "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<eos>", "<turn|>", "<|tool_response>"}
)  # fmt: skip

_NOT_OF_A_REPLY = frozenset(
    {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
     "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"}
)  # fmt: skip
"""They part the files that a model of code was trained on: what follows answers nobody."""

_CALLS = frozenset({"<|call|>", "<|calls|>"})
_LAST = frozenset({"<|return|>", "<|flush|>"})


def ends_of_reply(told: Set[int], by_name: Mapping[str, int]) -> frozenset[int]:
    """Those that the settings tell, and those of a known name.

    by_name: the tokens of a vocabulary that no text of a user's becomes.
    """
    names = (_ENDS | _NOT_OF_A_REPLY) & by_name.keys()
    if names & _CALLS and names & _LAST:
        names -= {"<|end|>"}  # it ends a part of a reply there: gpt-oss, Solar
    if "<|tool_response>" in names:
        names -= {"</s>"}  # Gemma 4 has it for other ends
    return frozenset(told) | {by_name[name] for name in names}
