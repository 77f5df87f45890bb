"""What a reply must look like, as OpenAI's clients state it."""

import json
from typing import Annotated, Literal

from pydantic import Field

from app.serve.refusal import invalid
from app.serve.request_body import Fields
from decoding.constraint.grammar import Grammar, GrammarKind


class JsonSchema(Fields):
    """A schema by name; every schema is kept to exactly, whether strict or not."""

    name: object = None
    description: object = None
    strict: object = None
    schema_: Annotated[dict[str, object], Field(alias="schema")] = Field(
        default_factory=dict[str, object]
    )


class ResponseFormat(Fields):
    """Text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: Annotated[dict[str, object] | None, Field(alias="schema")] = None
    """As llama-server takes it, beside json_object."""

    def grammar(self) -> Grammar | None:
        """The grammar of the reply, None if it may be any text.

        Raises:
            RefusedError: the schema is missing.
        """
        if self.type == "text":
            return None
        if self.type == "json_object" and self.schema_ is None:
            return Grammar(GrammarKind.JSON_OBJECT)
        schema = self.schema_ if self.json_schema is None else self.json_schema.schema_
        if schema is None:
            what = "response_format.json_schema"
            raise invalid(f"{what} is missing", what)
        return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


def asked_grammar(form: ResponseFormat | None, gbnf: str | None) -> Grammar | None:
    """The grammar of a request, which may name one way only.

    Raises:
        RefusedError: it names two.
    """
    grammar = form.grammar() if form is not None else None
    if gbnf is None:
        return grammar
    if grammar is not None:
        raise invalid("response_format and grammar contradict each other", "grammar")
    return Grammar(GrammarKind.GBNF, gbnf)
