"""The catalogue's families and others: prompts are the reference's, with nothing added or lost.

Each family has its marks in a tiny vocabulary and a template of its form, in our words. The
reference is what transformers renders.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import gguf
import pytest

from backends.base import Tokenizer
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message, Tool, ToolCall
from backends.chat.reply_form import ChannelSpeller, ThinkingSpeller, split
from decoding.text import TextStream, spelling
from tests.backends.chat.test_template_families import JinjaHere
from tests.fixtures.channels import CHANNELS
from tests.fixtures.family_marks import ALL_MARKS
from tests.fixtures.tiny.tiny_file import BYTES, PLAIN
from tests.fixtures.tiny_models import byte_characters
from tests.fixtures.tokenizers import ByteTokenizer

if TYPE_CHECKING:
    from backends.chat.template_process import TemplateProcess

BOS, EOS = "<s>", "</s>"
THINK = ("<think>", "</think>")
CHATML = ("<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Family:
    """control, defined: marks by the type of their tokens. thinks: what stands around thinking.

    bos: what begins a text by the vocabulary, "" if nothing; adds_bos: also before every prompt.
    kind: of the vocabulary. tools: whether its form of calls is known.
    """

    template: str
    control: tuple[str, ...] = ()
    defined: tuple[str, ...] = ()
    thinks: tuple[str, str] = ("", "")
    bos: str = BOS
    adds_bos: bool = False
    kind: str = "gpt2"
    tools: bool = False


def _chatml(assistant: str, tail: str = "", head: str = "", result: str = "") -> str:
    """Turns in ChatML; a result is a user's turn unless it has a form of its own."""
    return (
        f"{head}{{% for m in messages %}}{{% if m.role == 'assistant' %}}<|im_start|>assistant\n"
        f"{assistant}<|im_end|>\n{{% elif m.role == 'tool' %}}<|im_start|>user\n"
        f"{result or '{{ m.content }}'}<|im_end|>\n"
        "{% elif m.role == 'user' or not loop.first or not tools %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
        f"{{% if add_generation_prompt %}}<|im_start|>assistant\n{tail}{{% endif %}}"
    )


_WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ messages[0].content }}\n<tools>{% for t in tools %}\n"
    "{{ t | tojson }}{% endfor %}\n</tools>REPLY<|im_end|>\n{% endif %}"
)
_HERMES = _WITH_TOOLS.replace("REPLY", " Reply <tool_call>\n{}\n</tool_call>")
_XML = _WITH_TOOLS.replace("REPLY", " Reply <tool_call><function=f><parameter=p></tool_call>")
_CALLS = (
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}"
)
_XML_CALLS = (
    "{% for c in m.tool_calls or [] %}<tool_call><function={{ c.function.name }}>"
    "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>"
    "{% endfor %}</function></tool_call>{% endfor %}"
)
_UNTHOUGHT = "{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
_RESULT = "<tool_response>\n{{ m.content }}\n</tool_response>"
_QWEN = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", *THINK)
_LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>"
    "{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>\n\n"
    "{% if loop.first and tools %}{{ tools | tojson(indent=4) }}\n{% endif %}"
    "{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}"
    '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}'
    "{% else %}{{ m.content | trim }}{% endif %}<|eot_id|>{% endfor %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
_GEMMA3 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content ~"
    " '\n\n' %}{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ first if loop.first }}{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "<start_of_turn>model\n"
)
_GEMMA4 = (
    "{{ bos_token }}{% macro answer(text) %}{% for part in text.split('<channel|>') %}"
    "{{ part.split('<|channel>')[0] }}{% endfor %}{% endmacro %}{% for m in messages %}"
    "<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ answer(m.content) if m.role == 'assistant' else m.content | trim }}<turn|>\n{% endfor %}"
    "<|turn>model\n{{ '<|channel>thought\n<channel|>' if enable_thinking is false }}"
)
_MISTRAL = (
    "{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]"
    "{% endif %}{% for m in messages %}{% if m.role == 'system' %}"
    "[SYSTEM_PROMPT]{{ m.content }} Think in [THINK] first.[/SYSTEM_PROMPT]"
    "{% elif m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}"
    "[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]{% else %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]"
    "{{ c.function.arguments | tojson }}{% endfor %}{{ eos_token }}{% endif %}{% endfor %}"
)
_MISTRAL_3 = _MISTRAL.replace("[INST]", "[INST] ").replace(
    "tools | tojson", "tools | tojson(separators=(',', ':'), sort_keys=True)"
)
_DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}<｜Assistant｜>"  # noqa: RUF001
    f"{_UNTHOUGHT}{{{{ eos_token }}}}{{% endif %}}{{% endfor %}}<｜Assistant｜><think>\n"  # noqa: RUF001
)
_GLM = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}"
    f"<think></think>\n{_UNTHOUGHT}{{% else %}}{{{{ m.content }}}}{{% endif %}}{{% endfor %}}"
    "<|assistant|>"
)
_KIMI = (
    "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>"
    "{% if m.role == 'assistant' %}<think>{{ m.reasoning_content if loop.last }}</think>{% endif %}"
    "{{ m.content }}<|im_end|>{% endfor %}<|im_assistant|>assistant<|im_middle|>"
)
_NEMOTRON = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}<SPECIAL_10>System\n"
    "{{ m.content }}\n{% elif m.role == 'user' %}<SPECIAL_11>User\n{{ m.content }}\n{% else %}"
    f"<SPECIAL_11>Assistant\n{_UNTHOUGHT}\n<SPECIAL_12>\n{{% endif %}}{{% endfor %}}"
    "<SPECIAL_11>Assistant\n<think>\n"
)
_PHI_MINI = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
_LFM = _chatml(  # keeps the last answer as it is
    f"{{% if loop.index == messages | length - 1 %}}{{{{ m.content }}}}{{% else %}}{_UNTHOUGHT}"
    "{% endif %}",
    head="{{ bos_token }}",
)
_GEMMA_MARKS = ("<start_of_turn>", "<end_of_turn>", "<start_of_image>")
_TURNS4 = ("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>")
_SEVEN = ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")
_MISTRAL_MARKS = (
    *_SEVEN, "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[ARGS]",
    "[THINK]", "[/THINK]",
)  # fmt: skip
_HEADERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>")
_GPT_NAMES = ("start", "end", "message", "channel", "constrain", "call", "return")
_GPT = tuple(f"<|{name}|>" for name in _GPT_NAMES)
_ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
_KIMI_MARKS = tuple(f"<|im_{name}|>" for name in ("user", "assistant", "system", "middle", "end"))

FAMILIES = {
    "SmolLM2": Family(_chatml("{{ m.content }}"), CHATML, bos=CHATML[0]),
    "SmolLM3": Family(
        _chatml("{{ m.content.lstrip('\n') }}"), CHATML, ("<tool_call>", *THINK), THINK
    ),
    "Llama 3": Family(_LLAMA, _HEADERS, bos="<|begin_of_text|>", adds_bos=True, tools=True),
    "Qwen3": Family(
        _chatml(_UNTHOUGHT + _CALLS, head=_HERMES, result=_RESULT), CHATML, _QWEN, THINK, tools=True
    ),
    "Qwen3.5": Family(
        _chatml(_UNTHOUGHT + _XML_CALLS, "<think>\n", _XML, _RESULT),
        CHATML, _QWEN, ("", "</think>"), tools=True,
    ),
    "Gemma 3": Family(_GEMMA3, _GEMMA_MARKS, bos="<bos>", adds_bos=True, kind="llama"),
    "Gemma 4": Family(
        _GEMMA4, (), _TURNS4, ("<|channel>thought\n", "<channel|>"), "<bos>", True, "llama"
    ),
    "Mistral": Family(_MISTRAL, _MISTRAL_MARKS, (), ("[THINK]", "[/THINK]"), tools=True),
    "Mistral, SentencePiece": Family(
        _MISTRAL_3, _MISTRAL_MARKS, adds_bos=True, kind="llama",
        tools=True,
    ),
    "Phi-4": Family(
        _chatml("{{ m.content }}").replace("\n", "<|im_sep|>"), (*CHATML, "<|im_sep|>")
    ),
    "Phi-4-mini": Family(_PHI_MINI, (*_ROLES[:3], "<|end|>")),
    "gpt-oss": Family(
        CHANNELS, (), _GPT, ("<|channel|>analysis<|message|>", ""), tools=True
    ),
    "LFM2.5": Family(_LFM, CHATML, THINK, THINK, "<|startoftext|>"),
    "Nemotron": Family(
        _NEMOTRON, ("<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>"), THINK, ("", "</think>")
    ),
    "DeepSeek": Family(
        _DEEPSEEK, ("<｜User｜>", "<｜Assistant｜>"), THINK, ("", "</think>"),  # noqa: RUF001
        "<｜begin▁of▁sentence｜>", True,  # noqa: RUF001
    ),
    "GLM": Family(_GLM, ("[gMASK]", "<sop>", *_ROLES), THINK, THINK),
    "Kimi": Family(_KIMI, (*_KIMI_MARKS, *THINK), (), THINK),
}  # fmt: skip

ATTACHED = "".join(ALL_MARKS) + "<|<|end|>|>[[INST]"
HOLE, SECRET, ANSWER = "zqholeqz", "I should greet", "Hello, you."
TOOL = Tool("weather", "Tells it: é.", '{"type": "object", "properties": {"b": {}, "a": {}}}')
ARGUMENTS = {"city": "Bern", "at": "né"}


def llama(family: Family, folder: Path) -> Iterator[Tokenizer]:
    """llama.cpp's tokenizer of a file with this vocabulary."""
    pytest.importorskip("backends.llamacpp")
    from backends.engines.model_loading import vocabulary

    kinds, marks = gguf.TokenType, {family.bos, EOS, *family.control} - {""}
    plain = [*BYTES, *PLAIN] if family.kind == "llama" else [*byte_characters().values(), "he"]
    control = ["<unk>", *sorted(marks)]
    texts = [*control, *plain, *family.defined]
    types = [kinds.CONTROL] * len(control)
    types += [kinds.BYTE if re.fullmatch("<0x..>", text) else kinds.NORMAL for text in plain]
    types += [kinds.USER_DEFINED] * len(family.defined)
    path = folder / "vocabulary.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("context_length", "embedding_length", "block_count", "head_count"):
        getattr(writer, f"add_{key}")(8)
    writer.add_feed_forward_length(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(texts))
    writer.add_tokenizer_model(family.kind)
    writer.add_tokenizer_pre("default")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_scores([0.0] * len(texts))
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(texts.index(family.bos))
    writer.add_eos_token_id(texts.index(EOS))
    writer.add_add_bos_token(family.adds_bos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with vocabulary(path) as found:
        cast("Any", found.tokenizer).chat_template = family.template
        yield found.tokenizer


def mlx(family: Family, folder: Path) -> Iterator[Tokenizer]:
    """The tokenizers library's, byte-level."""
    pytest.importorskip("mlx.core")
    from tokenizers import AddedToken

    from backends.mlx.tokenizer import MlxTokenizer
    from tests.backends.mlx.test_mlx_tokenizer import byte_level

    del folder
    engine, control = byte_level(), [*dict.fromkeys([family.bos, EOS, *family.control])]
    for marks, is_special in ((control, True), (family.defined, False)):
        added = [AddedToken(mark, special=is_special, normalized=False) for mark in marks]
        engine.add_tokens(added)
    yield MlxTokenizer(
        engine,
        n_vocab=engine.get_vocab_size(),
        end_tokens=frozenset(),
        template=family.template,
        bos=engine.token_to_id(family.bos),
        adds_bos=family.adds_bos,
        eos=engine.token_to_id(EOS),
    )


@pytest.fixture(params=[llama, mlx], ids=["llama.cpp", "MLX"])
def tokenizer(
    request: pytest.FixtureRequest, family: Family, tmp_path: Path
) -> Iterator[Tokenizer]:
    yield from request.param(family, tmp_path)


def reference(family: Family, messages: list[dict[str, Any]], tools: list[Any] | None) -> str:
    """What transformers renders."""
    utilities = pytest.importorskip(
        "transformers.utils.chat_template_utils", reason="it comes with MLX"
    )
    texts, _ = utilities.render_jinja_template(
        conversations=[messages],
        tools=tools,
        chat_template=family.template,
        add_generation_prompt=True,
        bos_token=family.bos,
        eos_token=EOS,
    )
    return texts[0]


def told(tokenizer: Tokenizer, tokens: list[int], template: str, begun: list[int]) -> str:
    """The text of a reply, as session and server tell it."""
    speller = (ChannelSpeller if template == CHANNELS else ThinkingSpeller)(tokenizer)
    stream = TextStream(tokenizer, begun=begun, spell=speller)
    return "".join([*map(stream.feed, tokens), stream.finish()])


def reply(tokenizer: Tokenizer, family: Family) -> list[int]:
    """Tokens of a reply with thinking, as the model writes it."""
    opening, closing = family.thinks
    text = f"{opening}{SECRET}{closing}{ANSWER}" if opening or closing else ANSWER
    if family.template == CHANNELS:
        text = f"{opening}{SECRET}<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}"
    return tokenizer.encode(text, special=True)


def conversation(said: str, *, has_tools: bool) -> list[Message]:
    """Five questions, with foreign text in every role. said: the answers but one."""
    call = ToolCall("abcdefgh1", TOOL.name, json.dumps(ARGUMENTS))
    called = [Message("assistant", "", (call,)), Message("tool", HOLE, answers=call.id)]
    return [
        Message("system", f"Be kind. {HOLE}"),
        Message("user", "Hi"),
        Message("assistant", said),
        Message("user", f"Look:\n{HOLE}\nWell?"),
        Message("assistant", said.replace(ANSWER, f"You wrote {HOLE}.")),
        Message("user", "The weather?"),
        *(called if has_tools else []),
        Message("assistant", said),
        Message("user", "Sure?"),
        Message("assistant", said),
        Message("user", "And what else?"),
    ]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_prompt_is_the_references_with_nothing_added_or_lost(
    family: Family, tokenizer: Tokenizer
) -> None:
    said = told(tokenizer, reply(tokenizer, family), family.template, [])
    turns = conversation(said.lstrip(), has_tools=family.tools)
    written: list[dict[str, Any]] = []
    for turn in turns:
        content = turn.content if turn.role != "assistant" else split(turn.content).answer
        written.append({"role": turn.role, "content": content})
        if turn.calls:
            function = {"name": TOOL.name, "arguments": ARGUMENTS}
            calls = [{"id": turn.calls[0].id, "type": "function", "function": function}]
            written[-1]["tool_calls"] = calls
        if turn.answers:
            written[-1] |= {"tool_call_id": turn.answers, "name": TOOL.name}
    function = {"name": TOOL.name, "description": TOOL.description}
    function["parameters"] = json.loads(TOOL.parameters)
    tools = [{"type": "function", "function": function}] if family.tools else None
    rendered = reference(family, written, tools)
    if family.adds_bos and not rendered.startswith(family.bos):
        rendered = family.bos + rendered

    names = sorted(tokenizer.special_texts, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, names))})", rendered)
    marks, attached = parts[1::2], ATTACHED
    if tokenizer.piece(tokenizer.encode("a", special=False)[0]) == b" ":  # SentencePiece
        parts[::2] = [f" {text}" if text else "" for text in parts[::2]]
        attached = attached.replace("\u2581", " ")
    expected = "".join(parts).replace(HOLE, attached)

    filled = [Message(t.role, t.content.replace(HOLE, ATTACHED), t.calls, t.answers) for t in turns]
    template = ChatTemplate(tokenizer, cast("TemplateProcess", JinjaHere()))
    made = template.prompt(filled, [TOOL] if family.tools else [])
    assert (made.note, made.stops) == ("", ())
    found, text = [], b""
    for token in made.tokens:
        entry = tokenizer.entry(token)
        is_mark = entry in (name.encode() for name in names)
        found += [entry.decode()] if is_mark else []
        text += entry if is_mark else tokenizer.piece(token)
    assert found == marks
    assert text.decode() == expected
    assert SECRET not in expected


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_thinking_is_told_alike_and_a_reply_that_is_cut_goes_on(
    family: Family, tokenizer: Tokenizer
) -> None:
    tokens = reply(tokenizer, family)
    whole = told(tokenizer, tokens, family.template, [])
    parts = split(whole)
    thinks = bool(family.thinks[1] or family.thinks[0])
    assert (parts.thinking, parts.answer.lstrip()) == (SECRET if thinks else "", ANSWER)
    template = ChatTemplate(tokenizer, cast("TemplateProcess", JinjaHere()))
    form = template.prompt([Message("user", "Hi")]).form
    for end in range(1, len(tokens)):
        text = told(tokenizer, tokens[:end], family.template, [])
        speller = (ChannelSpeller if form.channels else ThinkingSpeller)(tokenizer)
        known = list(spelling(tokenizer, tokens[:end], text, speller))
        assert text + told(tokenizer, tokens[end:], family.template, known) == whole
        spoken = told(tokenizer, template.spoken(text, form), family.template, [])
        assert spoken.strip().split() == text.strip().split()


def test_thinking_between_calls_is_told_where_a_template_asks_for_it() -> None:
    call = ToolCall("abcdefgh1", TOOL.name, json.dumps(ARGUMENTS))
    thought = Message("assistant", f"<think>\n{SECRET}\n</think>\n\nI look.", (call,))
    turns = [Message("user", "Hi"), thought, Message("tool", "sunny", answers=call.id)]
    source = _chatml(f"{{{{ m.reasoning_content }}}}|{{{{ m.content }}}}{_CALLS}", head=_HERMES)
    tokenizer = ByteTokenizer(source)
    template = ChatTemplate(tokenizer, cast("TemplateProcess", JinjaHere()))
    now = tokenizer.spell(template.prompt(turns, [TOOL]).tokens)
    assert f"{SECRET}|I look.<tool_call>" in now
    later = tokenizer.spell(template.prompt([*turns, Message("user", "And?")], [TOOL]).tokens)
    assert "assistant\n|I look.<tool_call>" in later
