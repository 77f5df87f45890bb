"""Options out of range or at odds with each other: exit 2, and what would be right."""

from collections.abc import Callable

import pytest

from tests.app.conftest import Specchat

LOAD = "app.loading.checked_loader.CheckedLoader.load"

OUT_OF_RANGE = [
    ("--temperature", "-0.1"),
    ("--temperature", "nan"),
    ("--top-k", "-1"),
    ("--top-k", "99999999999"),
    ("--top-p", "0"),
    ("--top-p", "1.01"),
    ("--min-p", "-0.1"),
    ("--min-p", "1.01"),
    ("--repeat-penalty", "0"),
    ("--seed", "-1"),
    ("--seed", "99999999999999999999"),
    ("--max-tokens", "-5"),
    ("--ctx", "0"),
    ("--threads", "0"),
    ("--gpu-layers", "-1"),
    ("--backend", "vulkan"),
    ("--stream", "perhaps"),
    ("--kv", "q3_k"),
]


@pytest.mark.parametrize("command", [("ask", "hi"), ("chat",)])
@pytest.mark.parametrize(("option", "value"), OUT_OF_RANGE)
def test_what_is_out_of_range_is_refused(
    specchat: Specchat, command: tuple[str, ...], option: str, value: str
) -> None:
    ended = specchat(*command, option, value)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert option.lstrip("-") in ended.stderr


@pytest.mark.slow
def test_more_threads_than_the_engine_can_start_are_refused(launch: Callable[..., object]) -> None:
    from subprocess import Popen

    process = launch("ask", "hi", "--threads", "100000", "--max-tokens", "1")
    assert isinstance(process, Popen)
    _, err = process.communicate()
    assert process.returncode == 2, err


@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--raw", "--system", "Be brief."), "--raw and --system"),
        (("--draft", "off,lookup"), "off cannot be part of a chain"),
        (("--draft", ""), "gap"),
        (("--draft", "self:bogus"), "'bogus'"),
        (("--draft", "self:skip=99"), "layers 0 to 29"),
        (("--draft", "self:skip=0-29"), "every layer"),
        (("--draft", "dmo"), "no drafter dmo. Nearest: demo"),
        (("--draft", "slef"), "no drafter slef. Nearest: self"),
        (("--backend", "cuda"), "it is one of auto, llamacpp, mlx"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_model_is_loaded(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr(LOAD, lambda *_: pytest.fail("the model was loaded"))
    ended = specchat("ask", "hi", *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert told in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("aks", "hi"), "'ask'"),
        (("ask", "--temprature", "1"), "--temperature"),
        (("ask", "one", "two"), "two"),
        (("ask", "--model"), "--model"),
        (("path", "nowhere"), "'config'"),
    ],
)
def test_typing_mistakes(specchat: Specchat, arguments: tuple[str, ...], told: str) -> None:
    ended = specchat(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert told in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("ask", "hi", "--max-tokens", "abc"), "--max-tokens cannot be 'abc': it must be a whole"),
        (("ask", "hi", "--max-tokens", "0"), "--max-tokens cannot be 0: it is at least 1"),
        (("ask", "hi", "--top-p", "much"), "--top-p cannot be 'much': it must be a number"),
        (("ask", "hi", "--temperature", "1000"), "--temperature cannot be 1000.0: it is 0, or"),
        (("chats", "show", "foo"), "NUMBER cannot be 'foo': it must be a whole number"),
        (("--ctx", "abc", "ask", "hi"), "--ctx cannot be 'abc': it must be a whole number"),
        (
            ("bench", "--questions", "0"),
            "--questions cannot be '0': it must be greater than or equal to 1",
        ),
        (
            ("models", "train", "demo", "--method", "nonsense"),
            "--method cannot be 'nonsense': it must be one of 'auto', 'eagle3', ",
        ),
        (("serve", "--port", "99999"), "--port cannot be 99999: it is at least 0, at most 65,535"),
    ],
)
def test_every_wrong_number_is_told_in_the_same_words(
    specchat: Specchat, arguments: tuple[str, ...], told: str
) -> None:
    ended = specchat(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"specchat: {told}")


IN_A_VARIABLE = [
    ("LOSSY", "eers"),
    ("TEMPERATURE", "101"),
    ("TEMPERATURE", "warm"),
    ("TOP_P", "0"),
    ("MAX_TOKENS", "0"),
    ("CTX", "0"),
    ("THREADS", "513"),
    ("GPU_LAYERS", "-1"),
    ("BACKEND", "vulkan"),
]


@pytest.mark.parametrize(("name", "value"), IN_A_VARIABLE)
def test_a_variable_that_cannot_be_used_is_named(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"SPECCHAT_{name}", value)
    ended = specchat("chat", stdin=b"")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"specchat: SPECCHAT_{name} cannot be ")
    assert "--" not in ended.stderr
