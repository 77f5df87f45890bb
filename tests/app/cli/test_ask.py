"""`specchat ask`: the answer on standard output, made of exactly what was asked."""

import json
import re
from pathlib import Path

import pytest

from app.chat.attachments import CITE
from app.cli.terminal import stdout
from backends.base import Model
from backends.chat.message import Message
from tests.app.conftest import AskJson, Specchat

pytestmark = pytest.mark.usefixtures("llamacpp")


GREEDY = ("--temperature", "0", "--max-tokens", "8")


@pytest.mark.slow
def test_standard_output_holds_the_answer_and_nothing_else(
    specchat: Specchat, ask_json: AskJson
) -> None:
    answer = ask_json("Say hello.", *GREEDY)["text"]
    ended = specchat("ask", "Say hello.", *GREEDY)
    assert answer.strip()
    assert (ended.returncode, ended.stdout) == (0, f"{answer}\n")


@pytest.mark.slow
def test_a_note_goes_to_standard_error(specchat: Specchat, tmp_path: Path) -> None:
    drafter = tmp_path / "damaged.gguf"
    drafter.write_bytes(b"GG")
    ended = specchat("ask", "Say hello.", *GREEDY, "--draft", str(drafter))
    plain = specchat("ask", "Say hello.", *GREEDY, "--draft", "off")
    assert str(drafter) in ended.stderr
    assert ended.stdout == plain.stdout
    assert plain.stderr == ""


@pytest.mark.slow
def test_an_answer_comes_piece_by_piece_and_no_stream_makes_it_one(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[str] = []
    monkeypatch.setattr(stdout, "write", pieces.append)
    specchat("ask", "Say hello.", *GREEDY, "--draft", "off")
    streamed, pieces[:] = list(pieces), []
    specchat("ask", "Say hello.", *GREEDY, "--draft", "off", "--no-stream")
    assert len([piece for piece in streamed if piece.strip()]) > 3
    assert pieces == ["".join(streamed)]


@pytest.mark.slow
def test_a_seed_repeats_the_answer_and_without_one_another_is_drawn(ask_json: AskJson) -> None:
    question = ("Tell me a story.", "--temperature", "1.5", "--max-tokens", "16")
    first, other = ask_json(*question), ask_json(*question)
    again = ask_json(*question, "--seed", str(first["sampling"]["seed"]))
    assert first["token_ids"] == again["token_ids"]
    assert first["token_ids"] != other["token_ids"]


@pytest.mark.slow
def test_raw_continues_the_text_as_it_stands(
    ask_json: AskJson, demo: Model, said: list[list[Message]]
) -> None:
    text = "The capital of France is"
    answer = ask_json(text, *GREEDY, "--raw")
    assert said == []
    assert answer["stats"]["prompt_tokens"] == len(demo.tokenizer.encode(text, special=True))


def test_system_leads_the_conversation(specchat: Specchat, said: list[list[Message]]) -> None:
    specchat("ask", "Hello", "--system", "Be brief.", *GREEDY)
    assert said == [[Message("system", "Be brief."), Message("user", "Hello")]]


@pytest.mark.slow
def test_piped_text_follows_the_prompt(specchat: Specchat, said: list[list[Message]]) -> None:
    specchat("ask", "Sum up:", *GREEDY, stdin="Grüße aus Köln 🎉\n".encode())
    assert said == [[Message("user", "Sum up:\n\nGrüße aus Köln 🎉")]]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_is_read_from_standard_input(
    specchat: Specchat, said: list[list[Message]], arguments: tuple[str, ...]
) -> None:
    ended = specchat("ask", *arguments, *GREEDY, stdin=b"\xef\xbb\xbfWhy is\nthe sky blue?\r\n")
    assert ended.returncode == 0
    assert [message.content.split() for message in said[0]] == [
        ["Why", "is", "the", "sky", "blue?"]
    ]


@pytest.mark.slow
def test_files_lead_in_order_each_in_a_fence_of_its_own(
    specchat: Specchat, said: list[list[Message]], tmp_path: Path
) -> None:
    plain, fenced = tmp_path / "a.txt", tmp_path / "b.md"
    plain.write_text("alpha\n", encoding="utf-8")
    fenced.write_text("```\nbeta\n```\n", encoding="utf-8")
    files = ("--file", str(plain), "--file", str(fenced))
    specchat("ask", "Compare:", *files, *GREEDY)
    expected = "a.txt:\n```\nalpha\n```\n\nb.md:\n````\n```\nbeta\n```\n````\n\nCompare:"
    assert said == [[Message("user", expected)]]


@pytest.mark.slow
def test_words_of_a_user_never_become_control_tokens(ask_json: AskJson, demo: Model) -> None:
    control = demo.tokenizer.special_texts[0]
    plain = ask_json("Hello", *GREEDY)["stats"]["prompt_tokens"]
    hostile = ask_json(f"Hello{control}", *GREEDY)["stats"]["prompt_tokens"]
    assert hostile > plain + 1


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_a_prediction_drafts_and_the_answer_stays_the_same(
    ask_json: AskJson, tmp_path: Path
) -> None:
    question = ("The days of the week are", "--raw", "--temperature", "0", "--max-tokens", "32")
    plain = ask_json(*question, "--draft", "off")
    file = tmp_path / "predicted"
    file.write_text(plain["text"], encoding="utf-8")
    predicted = ask_json(*question, "--predict", str(file))
    assert predicted["token_ids"] == plain["token_ids"]
    assert predicted["draft"]["predicted"]["accepted"] > 16
    assert "prediction" in predicted["draft"]["drafters"]
    assert plain["draft"]["predicted"] is None


@pytest.mark.slow
def test_a_prediction_that_is_no_text_is_no_error(ask_json: AskJson, tmp_path: Path) -> None:
    file = tmp_path / "binary"
    for data in (b"", b"\xff\xfe\0\0\xc3(" * 9):
        file.write_bytes(data)
        report = ask_json("Say hello.", *GREEDY, "--predict", str(file))
        assert len(report["token_ids"]) <= 8
        assert report["draft"]["predicted"] in (None, {"accepted": 0, "rejected": 0})


def test_a_prediction_that_cannot_be_read_is_named(specchat: Specchat, tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        ended = specchat("ask", "Say hello.", "--predict", str(path))
        assert ended.returncode == 2
        assert str(path) in ended.stderr


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["off", "lookup"])
def test_an_answer_matches_its_schema(ask_json: AskJson, tmp_path: Path, draft: str) -> None:
    schema = tmp_path / "person.json"
    schema.write_text(json.dumps(PERSON), "utf-8")
    settings = ("--temperature", "0.9", "--seed", "3", "--max-tokens", "60", "--draft", draft)
    report = ask_json("Who is it?", *settings, "--schema", str(schema))
    person = json.loads(report["text"])
    assert set(person) == {"name", "age"}
    assert isinstance(person["age"], int)
    assert (report["grammar"], report["finish_reason"]) == ("json_schema", "stop")


@pytest.mark.slow
def test_an_answer_that_is_cut_off_is_told_to_be_a_beginning(
    specchat: Specchat, tmp_path: Path
) -> None:
    schema = tmp_path / "person.json"
    schema.write_text(json.dumps(PERSON), "utf-8")
    asked = ("ask", "Who is it?", "--schema", str(schema), "--draft", "off", "--max-tokens")
    cut, whole = specchat(*asked, "4"), specchat(*asked, "60")
    assert cut.returncode == whole.returncode == 0
    assert "cut off after 4 tokens: the answer is only the beginning" in cut.stderr
    assert json.loads(whole.stdout)
    assert "cut off" not in whole.stderr


@pytest.mark.slow
def test_an_answer_matches_a_grammar_by_the_suffix_of_its_file(
    ask_json: AskJson, tmp_path: Path
) -> None:
    for name, grammar in {
        "one.gbnf": 'root ::= "yes" | "no"',
        "one.lark": 'start: "yes" | "no"',
        "one.regex": "(yes|no)\n",
    }.items():
        (tmp_path / name).write_text(grammar, "utf-8")
        asked = ("Is it?", "--draft", "off", "--grammar", str(tmp_path / name))
        assert ask_json(*asked)["text"] in ("yes", "no")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('{"not": {}}', "not"),
        ('{"$ref": "#"}', "without end"),
        (None, "cannot read"),
    ],
)
def test_an_unusable_schema_is_refused_before_the_model_is_loaded(
    specchat: Specchat, tmp_path: Path, text: str | None, reason: str
) -> None:
    schema = tmp_path / "schema.json"
    if text is not None:
        schema.write_text(text, "utf-8")
    ended = specchat("ask", "Hi", "--schema", str(schema), "--model", str(tmp_path / "none.gguf"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert reason in ended.stderr
    assert str(schema) in ended.stderr


@pytest.mark.slow
def test_a_grammar_that_the_model_finds_unusable_is_named_by_its_file(
    specchat: Specchat, tmp_path: Path
) -> None:
    (endless := tmp_path / "endless.gbnf").write_text("root ::= root", "utf-8")
    ended = specchat("ask", "Hi", "--draft", "off", "--grammar", str(endless))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"specchat: {endless}: the GBNF grammar cannot be used")


def test_an_answer_matches_one_grammar_only(specchat: Specchat) -> None:
    ended = specchat("ask", "Hi", "--schema", "a.json", "--grammar", "a.gbnf")
    assert ended.returncode == 2
    assert "contradict" in ended.stderr


@pytest.mark.slow
def test_a_folder_is_read_for_the_question(
    specchat: Specchat, said: list[list[Message]], tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The dog is called Rex.")
    ended = specchat("ask", "Who?", *GREEDY, "--folder", str(tmp_path / "notes"))
    assert said[-1][-1].content == "a.md:\n```\nThe dog is called Rex.\n```\n\nWho?"
    assert ended.stderr == ""
    refused = specchat("ask", "Who?", *GREEDY, "--file", str(tmp_path / "notes"))
    assert "--folder" in refused.stderr


@pytest.mark.slow
def test_passages_that_were_read_are_told(
    specchat: Specchat, said: list[list[Message]], tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    text = "".join(f"The dog number {n} is called Rex.\n\n" for n in range(200))
    (tmp_path / "notes" / "a.md").write_text(text)
    command = ("ask", "How many dogs are called Rex?", *GREEDY, "--ctx", "1024")
    command = (*command, "--folder", str(tmp_path / "notes"))
    ended = specchat(*command)
    assert CITE in said[-1][-1].content
    assert ended.stderr.splitlines()[0].startswith("[1] notes/a.md, lines ")
    assert re.search(r"^only \d+ of \d+ passages? were read$", ended.stderr, re.MULTILINE)
    read = json.loads(specchat(*command, "--json").stdout)["sources"]
    assert [one["number"] for one in read] == [*range(1, len(read) + 1)]
    assert all(one["text"] in text for one in read)
