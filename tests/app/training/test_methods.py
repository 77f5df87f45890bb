"""Which method suits a model: its own layers, taps where there are any, else last states."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.training.methods import chosen
from app.training.plan import Method
from backends.base import UsageError
from backends.engines.backend_selection import LLAMACPP
from models import catalogue
from models.reference import Reference
from tests.fixtures.drafter_files import OWN, TARGET_KEYS, written

TinyLlama = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("llamacpp")


def of(path: Path, name: str = "mine") -> Reference:
    return Reference(name, path)


def test_a_llama_is_read_at_its_layers_and_others_after_the_last(tiny_llama: TinyLlama) -> None:
    assert chosen(Method.AUTO, of(tiny_llama()), LLAMACPP).method is Method.EAGLE3
    other = of(tiny_llama(architecture="smollm3"))
    assert chosen(Method.AUTO, other, LLAMACPP).method is Method.HYDRA
    with pytest.raises(UsageError) as refused:
        chosen(Method.EAGLE3, other, LLAMACPP)
    assert "smollm3" in refused.value.why
    assert "--method hydra" in refused.value.remedy


def test_layers_that_a_model_brings_are_tuned_first(tmp_path: Path, tiny_llama: TinyLlama) -> None:
    path = written(tmp_path / "own.gguf", "qwen35", {**TARGET_KEYS, "nextn_predict_layers": 1}, OWN)
    found = chosen(Method.AUTO, of(path), LLAMACPP)
    assert found.method is Method.MTP
    assert "--draft mtp" in found.instead[0]
    with pytest.raises(UsageError, match="cannot be trained for by mtp") as refused:
        chosen(Method.MTP, of(tiny_llama()), LLAMACPP)
    assert refused.value.remedy == "Use --method eagle3."


def test_what_others_published_comes_first(tiny_llama: TinyLlama) -> None:
    found = chosen(Method.AUTO, of(tiny_llama(), "gpt-oss-20b"), LLAMACPP)
    assert found.published == "EAGLE-3 head, published for it: --draft eagle3"
    assert found.published in found.instead
    assert not chosen(Method.AUTO, of(tiny_llama()), LLAMACPP).published


def test_small_models_of_the_family_can_be_distilled(tiny_llama: TinyLlama) -> None:
    large = next(
        entry
        for entry in catalogue.entries()
        for one in entry.drafters
        if (small := catalogue.find(one.model)) and entry.parameters >= 10 * small.parameters
    )
    instead = "\n".join(chosen(Method.AUTO, of(tiny_llama(), large.name), LLAMACPP).instead)
    assert "--method distil --from" in instead
    alone = chosen(Method.AUTO, of(tiny_llama()), LLAMACPP).instead
    assert alone == ("prompt lookup, which needs no training: --draft lookup",)
