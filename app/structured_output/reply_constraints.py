"""Constraints of replies, in the tokens of the loaded model."""

from collections.abc import Sequence

from backends.base import Tokenizer, UsageError
from backends.chat.chat_template import Prompt
from backends.chat.thinking import OWN_MARKS
from decoding.constraint.after_reasoning import AfterReasoning, Reasoning
from decoding.constraint.compiled_grammar import compiled
from decoding.constraint.constraint import Constraint
from decoding.constraint.divisions import Divisions
from decoding.constraint.grammar import Grammar
from decoding.constraint.grammar_vocabulary import GrammarVocabulary
from decoding.drafters.cross_vocabulary.speller import Speller
from decoding.drafters.cross_vocabulary.token_bytes import TokenBytes

_CHANNEL, _ASSISTANT = "<|channel|>", "<|start|>assistant"
_FINAL = f"{_CHANNEL}final<|message|>"
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
        """Whether the vocabulary was read."""
        return self._vocabulary is not None

    def of(self, grammar: Grammar, prompt: Prompt) -> Constraint:
        """The constraint of the reply to a prompt, after the part of it that the prompt begins.

        A model that reasons first may do so freely; its answer must match. A text that is no
        conversation is continued without reasoning.

        Raises:
            UsageError: the grammar cannot be used, or does not allow the beginning of the reply.
        """
        made = compiled(grammar)
        vocabulary = self._built()
        self._divisions = self._divisions or Divisions(vocabulary.texts)
        constraint: Constraint = vocabulary.constraint(made, self._divisions)
        end = len(prompt.tokens) - prompt.begun
        reasoning = self._reasoning(prompt.tokens[:end]) if prompt.is_conversation else None
        if reasoning is not None:
            ends = self._tokenizer.end_tokens
            constraint = AfterReasoning(constraint, reasoning, vocabulary.texts, ends)
        begun = prompt.tokens[end:]
        if constraint.count_allowed((), begun) < len(begun):
            raise UsageError(
                f"the answer cannot be continued under {made.name}", "its beginning does not match"
            )
        constraint.accept(begun)
        return constraint

    def _reasoning(self, prompt: Sequence[int]) -> Reasoning | None:
        texts = self._built().texts
        end = b"".join(texts[token] for token in prompt[-_END_OF_PROMPT:])
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
        return Reasoning(b"", _FINAL.encode(), is_open=True)
    for opening, closing in OWN_MARKS.items():
        if closing in template:
            is_open = prompt.rstrip().endswith(opening)
            return Reasoning(opening.encode(), closing.encode(), is_open)
    return None
