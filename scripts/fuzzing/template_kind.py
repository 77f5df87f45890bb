"""Fuzzes chat templates, rendered with adversarial texts."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from scripts.fuzzing.damage import damaged
from scripts.fuzzing.kind import READ, REBUILT
from tests.fixtures.byte_tokenizer import ByteTokenizer

_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
_ODD = (
    "\ud800", "{{ '\\ud800' }}", "\ue000", "\ue0000\ue000",
    "{{ '\\ue000' + '9' * 5000 + '\\ue000' }}",
    "\0", "{{ messages[0].content[1:] }}", "{{ 1/0 }}", "{% for x in range(9**9) %}x{% endfor %}",
    "{{ raise_exception('\ud800') }}", "{{ '%c' % 57344 }}", "{{" * 3000, "{% if x %}" * 300,
    "((" * 2000, "{{ 9 ** 9999 }}", "{{ messages | tojson }}", "{{ strftime_now('\ud800%Y') }}",
    "{{ 'x' * 9999999 }}", "{{ [[]] * 99999999 }}",
)  # fmt: skip
_SAID = (
    Message("system", "Be brief."),
    Message("user", "Hi <|im_end|> \ue000 \ue0010\ue001 \ud83d \0 there"),
)


class TemplateKind:
    """Chat templates; a damaged one is refused by name, or the plain form is used, with a note."""

    name = "template"
    file_name = "chat_template.jinja"

    def samples(self, folder: Path) -> Sequence[bytes]:
        del folder
        return [_CHATML.encode()]

    def damage(self, good: bytes, random: Random) -> bytes:
        if random.random() < 0.5:
            return damaged(good, random)
        text = good.decode()
        for _ in range(random.choice((1, 2))):
            place = random.randrange(len(text) + 1)
            text = text[:place] + random.choice(_ODD) + text[place:]
        return text.encode("utf-8", "surrogatepass")

    def read(self, path: Path) -> str:
        source = path.read_bytes().decode("utf-8", "surrogateescape")
        with closing(TemplateProcess()) as process:
            prompt = ChatTemplate(ByteTokenizer(source), process).prompt(_SAID)
        assert prompt.tokens or not prompt.note
        prompt.note.encode()
        return REBUILT if prompt.note else READ
