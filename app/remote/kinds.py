"""The servers that are told apart, and what each takes beside what OpenAI's protocol has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LLAMACPP = {"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repeat_penalty"}
_VLLM = {"top_k": "top_k", "min_p": "min_p", "repeat_penalty": "repetition_penalty"}
_USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
_OPEN_END = {"continue_final_message": True, "add_generation_prompt": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """A server by name. sampling: its names of settings that OpenAI's protocol lacks.

    asks: fields of each request, such as those that ask for figures. continues: fields with which
    a last message of the assistant is continued; None where it is not. thinks: how thinking is
    chosen: by "template" variables, by "effort", or "" for not at all. takes_prediction: whether it
    drafts from a predicted text. takes_gbnf: whether it takes a grammar of that form. all_tokens:
    its top_k that leaves none out. ignores_names: whether its only model answers to any name.
    """

    name: str
    sampling: Mapping[str, str] = field(default_factory=dict[str, str])
    asks: Mapping[str, Any] = field(default_factory=dict[str, Any])
    continues: Mapping[str, Any] | None = None
    thinks: str = ""
    takes_prediction: bool = False
    takes_gbnf: bool = False
    all_tokens: int = 0
    ignores_names: bool = False


UNKNOWN = Kind("an unknown server")
MLX_LM = Kind("mlx_lm.server", _VLLM, thinks="template")

_KINDS = {
    "specchat": Kind(
        "specchat", _LLAMACPP, {}, {"continue_final_message": True}, "effort",
        takes_prediction=True, takes_gbnf=True, ignores_names=True,
    ),
    "llamacpp": Kind(
        "llama-server", _LLAMACPP, {"timings_per_token": True}, _OPEN_END, "template",
        takes_gbnf=True, ignores_names=True,
    ),
    "vllm": Kind("vLLM", _VLLM, _USAGE, _OPEN_END, "template", all_tokens=-1),
    "sglang": Kind(
        "SGLang", _VLLM, {**_USAGE, "return_spec_tokens_details": True},
        {"continue_final_message": True}, "template", all_tokens=-1,
    ),
    "organization_owner": Kind("LM Studio", _LLAMACPP),
    "library": Kind("Ollama", {}, {}, {}, "effort"),
    "me": Kind("llama_cpp.server", _LLAMACPP),
    "tensorrt_llm": Kind("TensorRT-LLM", _VLLM),
}  # fmt: skip
"""By the `owned_by` of their lists of models."""


def kind_of(models: list[Mapping[str, Any]]) -> Kind:
    owners = [one.get("owned_by") for one in models]
    if models and all(owner is None for owner in owners) and "created" in models[0]:
        return MLX_LM  # alone in naming no owner
    return next((_KINDS[str(one)] for one in owners if str(one) in _KINDS), UNKNOWN)
