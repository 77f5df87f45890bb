"""Images in requests, sent by OpenAI's and Anthropic's own clients to a tiny model that sees."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from types import ModuleType
from typing import Any

import anthropic
import openai
import pytest

from app.loading.session_options import SessionOptions
from app.serve.server import Server
from tests.app.serve.conftest import Spoken, asking
from tests.app.serve.test_files import Ask, chat, messages, responses, text_part
from tests.fixtures.served_engine import send, serving
from tests.fixtures.speaker import Speaker
from tests.fixtures.tiny.kinds import Tiny
from tests.fixtures.tiny.projector import picture, write_projector


@pytest.fixture(scope="module")
def seeing(
    llamacpp: ModuleType, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server of a tiny model with a projector."""
    home = tmp_path_factory.mktemp("seeing")
    model = Path(copyfile(tiny("llama"), home / "Tiny-Q8_0.gguf"))
    write_projector(home / "mmproj-Tiny-f16.gguf")
    with serving(home, options=SessionOptions(model=str(model), draft="off", threads=1)) as server:
        yield server


def image_part(ask: Ask, data: bytes | str) -> Any:
    url = data if isinstance(data, str) else f"data:image/png;base64,{b64encode(data).decode()}"
    if ask is messages and isinstance(data, bytes):
        encoded = b64encode(data).decode()
        source = {"type": "base64", "media_type": "image/png", "data": encoded}
        return {"type": "image", "source": source}
    if ask is messages:
        return {"type": "image", "source": {"type": "url", "url": url}}
    if ask is responses:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "image_url", "image_url": {"url": url}}


def answered(server: Server, ask: Ask, *parts: Any) -> tuple[int, str]:
    """Tokens of the prompt, and the reply."""
    said: Any = ask(Spoken(server, Speaker("")), [*parts, text_part(ask, "What is it?")])
    usage = said.usage
    tokens = usage.prompt_tokens if ask is chat else usage.input_tokens
    if ask is messages:
        tokens += usage.cache_read_input_tokens
    if ask is chat:
        return tokens, said.choices[0].message.content
    return tokens, said.output_text if ask is responses else said.content[0].text


@pytest.mark.parametrize("ask", [chat, responses, messages])
def test_images_are_seen_in_all_dialects(seeing: Server, ask: Ask) -> None:
    blind, _ = answered(seeing, ask)
    tokens, one = answered(seeing, ask, image_part(ask, picture(1)))
    assert tokens >= blind + 64
    assert (tokens, one) == answered(seeing, ask, image_part(ask, picture(1)))
    assert (tokens, one) != answered(seeing, ask, image_part(ask, picture(2)))
    assert send(seeing, "GET", "/props").json["modalities"]["vision"]


def test_a_form_after_an_image_is_kept_to(seeing: Server) -> None:
    with asking(seeing) as client:
        said = client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": [image_part(chat, picture(1))]}],
            response_format={"type": "json_object"},
            max_tokens=12,
        )
    assert (said.choices[0].message.content or "").lstrip().startswith("{")


@pytest.mark.parametrize("ask", [chat, responses, messages])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("https://example.com/a.png", "send the image itself, in base64"),
        (picture(1)[:20], "damaged PNG"),
        (picture(1)[:90], "damaged PNG"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "WebP"),
    ],
)
def test_what_cannot_be_seen_is_refused(
    seeing: Server, ask: Ask, data: bytes | str, why: str
) -> None:
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match=why):
        answered(seeing, ask, image_part(ask, data))


@pytest.mark.parametrize("ask", [chat, responses, messages])
def test_a_model_that_sees_nothing_says_so(spoken: Spoken, ask: Ask) -> None:
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError), match="sees no images"):
        ask(spoken, [image_part(ask, picture(1))])


def test_images_of_ollamas_client_are_seen(seeing: Server) -> None:
    ollama = pytest.importorskip("ollama")
    with ollama.Client(host=seeing.address) as client:
        options = {"num_predict": 4}
        blind = client.generate("any", "What is it?", options=options)
        one, other = (
            client.generate("any", "What is it?", images=[picture(n)], options=options)
            for n in (1, 2)
        )
        chat = client.chat(
            "any",
            [{"role": "user", "content": "What is it?", "images": [picture(1)]}],
            options=options,
        )
    assert one.prompt_eval_count >= blind.prompt_eval_count + 64
    assert (one.response, one.prompt_eval_count) != (other.response, other.prompt_eval_count)
    assert chat.message.content == one.response
