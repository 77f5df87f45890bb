"""Replies that must match a schema or a grammar, which is read from a file."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.chat.conversation import ReplyOptions
from backends.base import Tokenizer, UsageError
from backends.base.images import blind
from backends.base.safe_files import NotTextError, read_text
from backends.chat.chat_template import Prompt
from backends.chat.reply_form import OWN_MARKS
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.constraint import AfterReasoning, Constraint, Reasoning, ThinkingBudget
from decoding.constraint.divisions import Divisions
from decoding.constraint.grammar import Grammar, GrammarError, GrammarKind
from decoding.constraint.matcher import GrammarVocabulary
from decoding.drafters.cross_vocabulary.vocabularies import Speller, TokenBytes

_MOST_BYTES = 4 << 20
"""A character has up to 4 bytes; how long a grammar may be is checked where it is compiled."""

_BY_SUFFIX = {
    ".gbnf": GrammarKind.GBNF,
    ".lark": GrammarKind.LARK,
    ".regex": GrammarKind.REGEX,
    ".json": GrammarKind.JSON_SCHEMA,
}


def read_schema(path: Path) -> Grammar:
    """The JSON schema in a file.

    Raises:
        UsageError: the file cannot be read, or the schema cannot be used.
    """
    return _checked(path, GrammarKind.JSON_SCHEMA)


def read_grammar(path: Path, usual: GrammarKind = GrammarKind.GBNF) -> Grammar:
    """The grammar in a file, of the kind that its suffix tells; of the usual kind if it tells none.

    Raises:
        UsageError: the file cannot be read, or the grammar cannot be used.
    """
    return _checked(path, _BY_SUFFIX.get(path.suffix.lower(), usual))


def _checked(path: Path, kind: GrammarKind) -> Grammar:
    try:
        text = read_text(path, _MOST_BYTES)
    except NotTextError as error:
        raise UsageError(f"{path} {error.fault}", error.why) from error
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error)) from error
    if kind is GrammarKind.REGEX:  # an editor ends a file with a line break
        text = text.removesuffix("\n")
    grammar = Grammar(kind, text, str(path))
    with _naming_the_file(grammar):
        compiled(grammar)
    return grammar


@contextmanager
def _naming_the_file(grammar: Grammar) -> Generator[None]:
    """Have errors about a grammar begin with the name of its file."""
    try:
        yield
    except GrammarError as error:
        what = f"{grammar.file}: {error.what}" if grammar.file else error.what
        raise GrammarError(what, error.why, error.remedy) from error


_CHANNEL, _ASSISTANT = "<|channel|>", "<|start|>assistant"
_FINAL, _END_OF_CHANNEL = f"{_CHANNEL}final<|message|>", f"<|end|>{_ASSISTANT}"
"""Of templates with channels, as gpt-oss has: the answer is in the one that is called final."""

_END_OF_PROMPT = 16
"""Tokens at the end of a prompt in which a template may open the reasoning."""


class ReplyConstraints:
    """Builds the constraint of each reply; the vocabulary is read for the first, and kept."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocabulary: GrammarVocabulary | None = None
        self._divisions: Divisions | None = None

    @property
    def is_ready(self) -> bool:
        return self._vocabulary is not None

    def of(self, options: ReplyOptions, prompt: Prompt) -> Constraint | None:
        """The constraint of the reply to a prompt, after the part of it that the prompt begins.

        A model that reasons first may do so freely, up to its budget; its answer must match. A text
        that is no conversation is continued without reasoning. None if nothing is limited.

        Raises:
            UsageError: the grammar cannot be used, or does not allow the beginning of the reply.
        """
        end, grammar = len(prompt.tokens) - prompt.begun, options.grammar
        reasoning = self._reasoning(prompt.tokens[:end]) if prompt.is_conversation else None
        constraint, name = self._of_grammar(grammar, reasoning) if grammar else (None, "")
        if options.think_budget and reasoning is not None:
            constraint = self._budget(options.think_budget, reasoning, constraint)
        begun = prompt.tokens[end:]
        if constraint is None:
            return None
        if constraint.count_allowed((), begun) < len(begun):
            if not name:  # the thinking that is continued is longer than the budget
                return None
            raise UsageError(
                f"the answer cannot be continued under {name}", "its beginning does not match"
            )
        constraint.accept(begun)
        return constraint

    def _of_grammar(self, grammar: Grammar, reasoning: Reasoning | None) -> tuple[Constraint, str]:
        """The constraint of a grammar on the answer, and its name."""
        vocabulary = self._built()
        self._divisions = self._divisions or Divisions(vocabulary.texts)
        with _naming_the_file(grammar):
            made = compiled(grammar)
            constraint: Constraint = vocabulary.constraint(made, self._divisions)
        if reasoning is not None:
            ends = self._tokenizer.end_tokens
            constraint = AfterReasoning(constraint, reasoning, vocabulary.texts, ends)
        return constraint, made.name

    def _budget(self, budget: int, reasoning: Reasoning, inner: Constraint | None) -> Constraint:
        tokenizer = self._tokenizer
        return ThinkingBudget(
            budget,
            reasoning,
            tokenizer.n_vocab,
            tokenizer.entry,
            lambda text: tokenizer.encode(text.decode(), special=True),
            inner,
        )

    def _reasoning(self, prompt: Sequence[int]) -> Reasoning | None:
        end = b"".join(map(self._tokenizer.entry, blind(prompt)[-_END_OF_PROMPT:]))
        return reasoning_after(end.decode("utf-8", "replace"), self._tokenizer.chat_template or "")

    def _built(self) -> GrammarVocabulary:
        if self._vocabulary is None:
            speller = Speller(self._tokenizer, TokenBytes.of(self._tokenizer))
            self._vocabulary = GrammarVocabulary(self._tokenizer, speller.spell)
        return self._vocabulary


def reasoning_after(prompt: str, template: str) -> Reasoning | None:
    """How a model with this template reasons in its reply to a prompt; None if it does not.

    prompt: its end, of which the template may have written the opening text.
    """
    if prompt.endswith(_ASSISTANT) and _CHANNEL in template:
        return Reasoning(b"", _FINAL.encode(), True, _END_OF_CHANNEL.encode())
    for opening, closing in OWN_MARKS.items():
        if closing in template:
            is_open = prompt.rstrip().endswith(opening)
            return Reasoning(opening.encode(), closing.encode(), is_open)
    return None
