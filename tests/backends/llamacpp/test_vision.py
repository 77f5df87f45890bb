"""Images through the real mtmd, with tiny projectors: logits, prefixes, answers, damage."""

import ctypes
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from llama_cpp import llama_cpp as api

from backends import llamacpp
from backends.base import Context, Logits, Model, ModelError, PassStoppedError, UsageError
from backends.base.images import IMAGE_TOKENS, Image, blind, image_of
from backends.base.model import stopping_passes
from backends.engines.model_loading import own_head
from backends.llamacpp.model import LlamaModel
from backends.llamacpp.vision import mtmd_library
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.prefill import in_blocks, prefill, reuse
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.rounding import bound, is_plain
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.projector import picture, write_projector

BEFORE, AFTER = [1, 300, 301, 302, 303], [310, 311, 312, 313, 314, 315]
KINDS = {"mlp": "llama", "gemma3": "llama", "qwen2vl": "qwen35"}
"""Projectors with the model of each: the last has two dimensions of positions and a state."""
ROUNDING = bound(2e-3, 0.02)
"""Of logits that deviate by 2, in passes of other sizes; 0.007 was the most with `--card`."""


def image(seed: int) -> Image:
    return image_of(picture(seed), f"{seed}.png")


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, tiny: Tiny, tmp_path: Path) -> Iterator[LlamaModel]:
    projector = write_projector(tmp_path / "mmproj.gguf", request.param)
    with closing(
        llamacpp.load(tiny(KINDS[request.param]), threads=1, projector=projector)
    ) as model:
        yield model


def logits(context: Context, tokens: Sequence[int]) -> Logits:
    reuse(context, tokens)
    *_, (_, rows) = prefill(context, tokens)
    return rows[0].copy()


def engines_own(model: LlamaModel, picture: Image) -> Logits:
    """Logits after the same prompt, by the engine's own helper."""
    mtmd, vision = mtmd_library(), model.tokenizer.vision
    assert vision is not None
    parameters = api.llama_context_default_params()
    parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = 512, 512, 512
    parameters.n_threads = parameters.n_threads_batch = 1
    with ExitStack() as stack:
        pointer = api.llama_init_from_model(model.pointer, parameters)
        assert pointer is not None
        stack.callback(api.llama_free, pointer)
        parts = stack.enter_context(vision._divided(picture))
        past = ctypes.c_int32(len(BEFORE))
        before, after = ((ctypes.c_int32 * len(part))(*part) for part in (BEFORE, AFTER))
        assert not api.llama_decode(pointer, api.llama_batch_get_one(before, len(before)))
        for part in parts:
            assert not mtmd.mtmd_helper_eval_chunk_single(
                vision._loaded(), pointer, part, past.value, 0, 256, False, ctypes.byref(past)
            )
        assert not api.llama_decode(pointer, api.llama_batch_get_one(after, len(AFTER)))
        return np.ctypeslib.as_array(api.llama_get_logits(pointer), (model.info.n_vocab,)).copy()


def test_a_prompt_with_an_image_gives_the_logits_of_the_engines_own_helper(model: LlamaModel):
    seen = image(1)
    prompt = [*BEFORE, *model.tokenizer.image_tokens(seen), *AFTER]
    with closing(model.open(512)) as context:
        ours = logits(context, prompt)
    np.testing.assert_allclose(ours, engines_own(model, seen), atol=ROUNDING)


def test_images_are_told_apart_and_their_prefixes_are_reused(model: LlamaModel):
    one, other = (model.tokenizer.image_tokens(image(seed)) for seed in (1, 2))
    assert any(token >= IMAGE_TOKENS for token in one)
    assert all(0 <= token < model.info.n_vocab for token in blind(one + other))
    prompt = [*BEFORE, *one, *AFTER, *other, *AFTER]
    with closing(model.open(512)) as context, closing(model.open(512)) as fresh:
        expected = logits(context, prompt)
        assert not np.allclose(expected, logits(fresh, [*BEFORE, *other, *AFTER, *one, *AFTER]))
        known = len(BEFORE) + len(one) + len(AFTER)
        if context.can_roll_back:
            assert reuse(context, [*prompt[:known], 320]) == known
        for cut in (known, len(BEFORE) + 20, len(BEFORE), known + 20, known + len(other)):
            context.truncate(context.rollback_to(cut))
            np.testing.assert_allclose(logits(context, prompt), expected, atol=ROUNDING)
        state = context.save()
        expected = logits(context, [*prompt, 320])
        context.restore(prompt, state)
        np.testing.assert_array_equal(logits(context, [*prompt, 320]), expected)


@pytest.mark.processor("a card takes moments for an image, and longer with each look")
def test_encoding_stops_in_its_middle_and_leaves_the_context_as_it_was(model: LlamaModel):
    seen = model.tokenizer.image_tokens(image(1))
    prompt, vision = [*BEFORE, *seen, *AFTER], model.tokenizer.vision
    assert vision is not None
    with closing(model.open(512)) as context:
        context.forward(BEFORE, 0)
        looks = iter([False, False, True])
        with pytest.raises(PassStoppedError), stopping_passes(lambda: next(looks, True)):
            context.forward(seen, 0)
        looked = vision._looked
        assert context.length == len(BEFORE)
        assert not vision._rows
        found = logits(context, prompt)
        assert 0 < looked < vision._looked  # operations, of which the others were left out
        context.truncate(0)
        np.testing.assert_allclose(logits(context, prompt), found, atol=ROUNDING)


@pytest.mark.slow
@pytest.mark.processor("passes of other widths have the same bits")
@pytest.mark.parametrize("kind", ["mlp", "gemma3"])
def test_a_prompt_read_in_pieces_gives_the_bits_of_one_read_at_once(
    kind: str, demo: Model, tmp_path: Path
):
    width = 576
    projector = write_projector(tmp_path / "mmproj.gguf", kind, width=width)
    with ExitStack() as stack:
        loaded = llamacpp.load(demo.info.path, threads=1, projector=projector)
        model = stack.enter_context(closing(loaded))
        whole, context = (stack.enter_context(closing(model.open(512))) for _ in range(2))
        random = np.random.default_rng(4)
        before, after = random.integers(1000, 9000, (2, 100)).tolist()
        prompt = [*before[:37], *model.tokenizer.image_tokens(image(1)), *after]
        expected = logits(whole, prompt)
        blocks = in_blocks(len(prompt), context.exact_batch)
        for block, group in ((64, 4), (128, 8), (192, 20)):
            context.truncate(0)
            while context.length < blocks:
                context.forward(prompt[context.length : blocks][:block], 0)
            while len(prompt) - context.length > group:
                context.forward(prompt[context.length :][:group], 0)
            np.testing.assert_array_equal(logits(context, prompt), expected)


def answer(
    context: Context, prompt: Sequence[int], drafter: object = None
) -> tuple[list[int], int]:
    """Tokens of a greedy answer, and how many of them were drafted."""
    tokens: list[int] = []
    accepted = 0
    settings = SamplingSettings(temperature=0.0)
    limits = Limits(48, frozenset())
    for event in generate(context, prompt, settings, limits, drafters=lambda: drafter):  # type: ignore[arg-type]
        if isinstance(event, Step):
            tokens += event.tokens
            accepted += event.accepted
    return tokens, accepted


def test_greedy_answers_are_the_same_with_and_without_drafting(model: LlamaModel, tiny: Tiny):
    seen = model.tokenizer.image_tokens(image(1))
    prompt = [*BEFORE, *seen, *AFTER, *BEFORE, *seen, *AFTER]
    with ExitStack() as stack:
        blind_model = stack.enter_context(closing(llamacpp.load(model.info.path, threads=1)))
        context, beside = (
            stack.enter_context(closing(each.open(512))) for each in (model, blind_model)
        )
        plain, _ = answer(context, prompt)
        drafter = DraftModel("blind", beside, n_vocab=model.info.n_vocab, max_draft=4)
        found = [answer(context, prompt, one) for one in (PromptLookup(min_match=1), drafter)]
        context.truncate(0)
        found.append(answer(context, prompt, drafter))
        assert all(is_plain(context, prompt, tokens, plain) for tokens, _ in found)
        assert max(beside.tokens) < IMAGE_TOKENS


def test_a_head_drafts_for_a_model_that_sees(tiny: Tiny, tmp_path: Path):
    """What it would read of an image's rows is unknown to it."""
    projector = write_projector(tmp_path / "mmproj.gguf", "qwen2vl")
    with closing(llamacpp.load(tiny("qwen35"), threads=1, projector=projector)) as model:
        seen = [model.tokenizer.image_tokens(image(seed)) for seed in (1, 2)]
        prompt = [*BEFORE, *seen[0], *AFTER, *BEFORE, *seen[1], *AFTER]
        with closing(model.open(512)) as context:
            plain, _ = answer(context, prompt)
        with closing(model.open(512)) as context:
            head = own_head(model, context)
            assert head is not None
            drafter = DraftModel("mtp", head.open(512), n_vocab=model.info.n_vocab, max_draft=3)
            found = [answer(context, prompt, drafter)[0]]
            context.truncate(context.rollback_to(len(BEFORE)))
            found.append(answer(context, prompt, drafter)[0])
            assert all(is_plain(context, prompt, tokens, plain) for tokens in found)


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.nightly)])
def test_damaged_images_are_read_or_named(model: LlamaModel, count: int):
    chance = random.Random(2)
    named: list[str] = []
    with closing(model.open(512)) as context:
        for seed in range(count):
            size = chance.choice([(40, 30), (1, 1), (200, 3), (3, 250), (700, 7), (2000, 21)])
            data = bytearray(picture(seed, *size))
            for _ in range(chance.randrange(5)):
                data[chance.randrange(8, len(data))] = chance.randrange(256)
            del data[chance.choice([chance.randrange(8, len(data)), len(data)]) :]
            context.truncate(0)
            try:
                tokens = model.tokenizer.image_tokens(image_of(bytes(data), "some.png"))
            except UsageError as error:
                named.append(error.what)
                continue
            for _ in prefill(context, tokens[:512], 0):
                pass
    assert 0 < len(named) < count
    assert all(re.search("damaged|times as long|million pixels", what) for what in named)


def test_a_model_without_a_projector_says_so(tiny: Tiny, tmp_path: Path):
    with closing(llamacpp.load(tiny("llama"), threads=1)) as model:
        assert model.info.image_refusal
        with pytest.raises(UsageError, match="sees no images"):
            model.tokenizer.image_tokens(image(1))
    wrong = write_projector(tmp_path / "mmproj.gguf", width=128)
    loaded = llamacpp.load(tiny("llama"), threads=1, projector=wrong)
    with closing(loaded) as model, pytest.raises(ModelError, match="mismatch"):
        model.tokenizer.image_tokens(image(1))
    with closing(llamacpp.load(tiny("llama"), threads=1, projector=tiny("llama"))) as model:
        assert "no projector" in model.info.image_refusal
