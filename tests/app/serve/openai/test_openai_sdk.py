"""OpenAI's own client against the server, over the bundled model."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

pytest.importorskip("uvicorn")
openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

from app.loading.session_options import SessionOptions
from app.serve.server import Server
from tests.fixtures.costs import cheap_drafting
from tests.fixtures.served_engine import send, serving

ASKED = "Count from one to five in words."
MESSAGES = [{"role": "user", "content": ASKED}]
LENGTH = 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, llamacpp: object) -> Iterator[Server]:
    options = SessionOptions("demo", "lookup", ctx=512, threads=1)
    with cheap_drafting(), serving(tmp_path_factory.mktemp("home"), None, options) as served:
        yield served


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with openai.OpenAI(
        base_url=f"{server.address}/v1", api_key="any", max_retries=0, timeout=60
    ) as made:
        yield made


@pytest.fixture(scope="module")
def chat(client: Any) -> Callable[..., Any]:
    """Asks with the longest answer of these tests."""

    def ask(**options: object) -> Any:
        asked = {"model": "any", "messages": MESSAGES, "max_tokens": LENGTH, **options}
        return client.chat.completions.create(**asked)

    return ask


@pytest.fixture(scope="module")
def greedy(chat: Callable[..., Any]) -> str:
    """The answer at temperature 0."""
    return chat().choices[0].message.content


def test_a_stream_has_the_text_of_the_whole_and_tells_its_usage(chat, greedy: str) -> None:
    whole = chat()
    streamed = list(chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices)
    assert text == greedy == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in streamed if chunk.choices]
    assert reasons[-1] == whole.choices[0].finish_reason == "length"
    assert not any(reasons[:-1])
    assert not streamed[-1].choices
    for usage in (whole.usage, streamed[-1].usage):
        assert usage.completion_tokens == LENGTH
        assert usage.total_tokens == usage.prompt_tokens + LENGTH
        assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    assert all(chunk.usage is None for chunk in chat(stream=True))


def test_any_model_name_gets_the_one_that_is_loaded_which_the_reply_names(chat, client) -> None:
    assert chat(model="gpt-9", max_tokens=1).model == "demo"
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_a_stop_text_ends_the_answer_before_itself(chat, greedy: str) -> None:
    stop = greedy[5:9]
    answered = chat(stop=[stop, "never comes"]).choices[0]
    assert answered.message.content == greedy[: greedy.index(stop)]
    assert answered.finish_reason == "stop"
    streamed = chat(stop=stop, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
    assert text == answered.message.content


@pytest.mark.slow
def test_a_seed_repeats_an_answer_and_choices_have_seeds_of_their_own(chat) -> None:
    def texts(**options: object) -> list[str]:
        answered = chat(temperature=1.5, top_p=1.0, **options)
        return [choice.message.content for choice in answered.choices]

    first = texts(seed=7, n=3)
    assert first == texts(seed=7, n=3)
    assert first[:1] == texts(seed=7)
    assert len(set(first)) == 3
    assert [choice.index for choice in chat(n=2).choices] == [0, 1]


def test_log_probabilities_are_told_of_each_token(chat, greedy: str) -> None:
    told = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert "".join(token.token for token in told) == greedy
    assert len(told) == LENGTH
    for token in told:
        assert token.logprob == token.top_logprobs[0].logprob  # the likeliest, at temperature 0
        assert token.logprob > token.top_logprobs[1].logprob
        assert bytes(token.bytes).decode() == token.token
    streamed = [
        token
        for chunk in chat(logprobs=True, stream=True)
        if chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content
    ]
    assert [token.token for token in streamed] == [token.token for token in told]
    assert not any(token.top_logprobs for token in streamed)


def test_the_tokens_of_a_stop_text_are_not_told(chat, greedy: str) -> None:
    stop = greedy[5:9]
    answered = chat(logprobs=True, stop=stop).choices[0]
    told = "".join(token.token for token in answered.logprobs.content)
    assert told.startswith(answered.message.content)
    assert greedy.startswith(told)
    assert stop not in told


def test_a_token_that_is_banned_does_not_come(
    chat: Callable[..., Any], server: Server, greedy: str
) -> None:
    active = server.served.engine._active
    assert active is not None
    session = active.session
    first = session.model.tokenizer.encode(greedy, special=False)[0]
    banned = chat(logit_bias={str(first): -100}).choices[0].message.content
    assert not banned.startswith(session.model.tokenizer.piece(first).decode())
    piece = session.model.tokenizer.piece(first).decode()
    liked = chat(logit_bias={str(first): 100}, max_tokens=3)
    assert liked.choices[0].message.content == 3 * piece


def test_penalties_keep_an_answer_from_repeating_itself(chat) -> None:
    def words(**options: object) -> list[str]:
        asked = [{"role": "user", "content": "Repeat the word yes many times."}]
        text = chat(messages=asked, max_tokens=24, temperature=0, **options)
        return text.choices[0].message.content.lower().replace(",", "").split()

    often = words().count("yes")
    assert often > 4
    penalties = [
        {"presence_penalty": 2.0, "frequency_penalty": 2.0},
        {"extra_body": {"repeat_penalty": 1.8}},
    ]
    for options in penalties:
        assert words(**options).count("yes") < often / 2


def test_a_predicted_answer_is_the_same_in_fewer_steps(chat, greedy: str) -> None:
    answered = chat(prediction={"type": "content", "content": greedy})
    assert answered.choices[0].message.content == greedy
    details = answered.usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 0
    assert answered.timings["draft_n_accepted"] >= details.accepted_prediction_tokens


@pytest.mark.slow
def test_texts_are_continued_without_a_template(client) -> None:
    def complete(**options: object):
        asked = {"model": "any", "prompt": "One, two,", "max_tokens": 6, **options}
        return client.completions.create(**asked)

    whole = complete()
    assert "three" in whole.choices[0].text
    streamed = "".join(chunk.choices[0].text for chunk in complete(stream=True))
    assert streamed == whole.choices[0].text
    several = complete(prompt=["One, two,", "Red, green,"], n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == whole.choices[0].text
    assert several.choices[2].text == several.choices[3].text != whole.choices[0].text
    told = complete(logprobs=1).choices[0]
    assert "".join(told.logprobs.tokens) == told.text
    assert told.logprobs.text_offset[:2] == [0, len(told.logprobs.tokens[0])]


def test_the_model_and_the_work_are_told_on_paths_of_their_own(
    server: Server, chat, greedy: str
) -> None:
    chat(prediction={"type": "content", "content": greedy})
    assert send(server, "GET", "/health").json == {"status": "ok"}
    props = send(server, "GET", "/props").json
    assert props["default_generation_settings"]["n_ctx"] == 512
    assert props["default_generation_settings"]["params"]["n_predict"] == -1
    assert "/" not in props["model_alias"]
    assert not props["modalities"]["vision"]
    text = send(server, "GET", "/metrics").text
    counted = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line[0] != "#"
    }
    assert counted["specchat_completion_tokens_total"] >= 2
    assert counted["specchat_prompt_tokens_total"] > counted["specchat_cached_prompt_tokens_total"]
    assert counted["specchat_requests_waiting"] == 0
    assert counted['specchat_responses_total{path="/v1/chat/completions",status="200"}'] >= 1
    drafted, accepted = (
        counted[f'specchat_{what}_tokens_total{{drafter="prediction"}}']
        for what in ("drafted", "accepted")
    )
    assert drafted >= accepted > 0


SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "word": {"enum": ["one", "two"]}},
    "required": ["count", "word"],
    "additionalProperties": False,
}


@pytest.mark.slow
def test_a_schema_is_kept_to(chat) -> None:
    pytest.importorskip("llguidance")
    form = {"type": "json_schema", "json_schema": {"name": "counted", "schema": SCHEMA}}
    answered = chat(response_format=form, max_tokens=60).choices[0]
    read = json.loads(answered.message.content)
    assert isinstance(read["count"], int)
    assert read["word"] in ("one", "two")
    assert answered.finish_reason == "stop"
    streamed = chat(response_format=form, max_tokens=60, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
    assert text == answered.message.content


@pytest.mark.slow
def test_any_json_object_is_kept_to(chat) -> None:
    """Cut off it is the beginning of one, which small models seldom end."""
    pytest.importorskip("llguidance")
    answered = chat(response_format={"type": "json_object"}, max_tokens=60).choices[0]
    assert answered.message.content.startswith("{")
    if answered.finish_reason == "stop":
        assert isinstance(json.loads(answered.message.content), dict)


def test_a_grammar_is_kept_to(chat) -> None:
    pytest.importorskip("llguidance")
    gbnf = 'root ::= ("yes" | "no") "!"'
    answered = chat(extra_body={"grammar": gbnf})
    assert answered.choices[0].message.content in ("yes!", "no!")


@pytest.mark.slow
def test_a_reply_is_parsed_into_a_pydantic_model(client) -> None:
    class Colour(pydantic.BaseModel):
        name: Literal["red", "green", "blue"]
        is_warm: bool

    completion = client.chat.completions.parse(
        model="any",
        messages=[{"role": "user", "content": "Name a colour."}],
        max_tokens=64,
        response_format=Colour,
    )
    assert isinstance(completion.choices[0].message.parsed, Colour)
