"""What is offered and called is what the user chose; what a model says grants nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.tools.mcp_servers import Servers
from app.tools.toolbox import (
    Toolbox,
    before_calls,
    calls_in,
    chosen_names,
    for_server,
    is_allowed,
    result_of,
)
from backends.chat.message import Tool
from backends.chat.reply_form import ReplyForm, ToolForm
from tests.fixtures import tool_servers

CALL = '{"name": "search", "arguments": {"words": "tea"}}'


@pytest.fixture
def toolbox(tmp_path: Path) -> Iterator[Toolbox]:
    (tmp_path / "plan.md").write_text("Buy tea.\n")
    file = tool_servers.write(tmp_path, {"gone": {"command": "/no/such/program"}})
    box = Toolbox(Servers(file), lambda: [tmp_path])
    yield box
    box.close()


@pytest.mark.parametrize("chosen", ["", "off", " , off"])
def test_by_default_there_are_no_tools(toolbox: Toolbox, chosen: str) -> None:
    assert toolbox.offered(chosen) == ()
    text, ending = result_of(toolbox.call("search", '{"words": "tea"}', chosen))
    assert (text, ending) == ("Error: there is no tool search", "failed")


def test_our_own_tools_are_offered_and_called_once_chosen(toolbox: Toolbox) -> None:
    assert [tool.name for tool in toolbox.offered("files")] == [
        "list_files", "read_lines", "search",
    ]  # fmt: skip
    text, ending = result_of(toolbox.call("search", '{"words": "tea"}', "files"))
    assert text.endswith("plan.md:1: Buy tea.")
    assert not ending


@pytest.mark.parametrize("arguments", ["[]", "{", "5", '{"words": 5}', '"x"'])
def test_arguments_that_are_none_are_told(toolbox: Toolbox, arguments: str) -> None:
    text, ending = result_of(toolbox.call("search", arguments, "files"))
    assert text.startswith("Error: ")
    assert ending == "failed"


def test_a_server_that_fails_is_left_out_and_told(toolbox: Toolbox) -> None:
    while not toolbox.is_ready("files, gone"):
        toolbox.start("files, gone")["gone"].exception()
    assert len(toolbox.offered("files, gone")) == 3
    assert [error.what for error in toolbox.faults("files, gone")] == ["gone cannot be started"]


def test_a_call_that_was_stopped_says_so(toolbox: Toolbox) -> None:
    from concurrent.futures import Future

    future: Future[str] = Future()
    future.cancel()
    assert result_of(future) == ("The user stopped this call.", "stopped")


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        (ToolForm.HERMES, f"Let me look.\n<tool_call>\n{CALL}\n</tool_call>", "Let me look."),
        (ToolForm.XML, "So.\n<tool_call>\n<function=search>\n<parameter=words>\ntea\n</parameter>"
            "\n</function>\n</tool_call>", "So."),
        (ToolForm.LLAMA, f"<|python_tag|>{CALL}", ""),
        (ToolForm.MISTRAL, f"Well. [TOOL_CALLS][{CALL}]", "Well."),
        (ToolForm.GENERIC, CALL, ""),
        (ToolForm.GENERIC, f"```json\n{CALL}\n```", ""),
        (ToolForm.HERMES, f"<think>\n<tool_call>?\n</think>\n\nYes.<tool_call>{CALL}</tool_call>",
            "<think>\n<tool_call>?\n</think>\n\nYes."),
    ],
)  # fmt: skip
def test_calls_of_each_form_are_read_apart_from_what_is_said(
    form: ToolForm, text: str, said: str
) -> None:
    (call,) = calls_in(text, ReplyForm(form), [Tool("search")])
    assert (call.name, call.arguments.replace(" ", "")) == ("search", '{"words":"tea"}')
    assert before_calls(text) == said


def test_several_calls_are_read_in_order() -> None:
    text = "".join(f"<tool_call>{CALL.replace('tea', word)}</tool_call>" for word in "abc")
    calls = calls_in(text, ReplyForm(ToolForm.HERMES), [Tool("search")])
    assert [call.arguments for call in calls] == [f'{{"words": "{word}"}}' for word in "abc"]
    assert len({call.id for call in calls}) == 3


def test_only_what_the_user_allowed_needs_no_approval() -> None:
    assert is_allowed("search", "")
    assert not is_allowed("git.push", "")
    assert not is_allowed("git.push", "git.pull gitt.* git push search .*  *")
    assert is_allowed("git.push", "git.push")
    assert is_allowed("git.push", f"web.* {for_server('git.pull')}")


def test_names_are_those_of_the_setting() -> None:
    assert chosen_names(" files,github, off,,files ") == ["files", "github"]
