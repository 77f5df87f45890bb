"""Checks that a server's greedy answers are those of one that runs its model without drafting."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from app.builtin_prompts import built_in_prompts
from app.chat.conversation import Conversation
from app.engine.remote_session import RemoteSession
from app.engine.reply import Reply, Request
from app.learned.remote_verdicts import keep_verdict
from backends.base import PassStoppedError
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings

TOKENS = 128
_GREEDY = SamplingSettings(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)

_DIFFER = (
    " Passes that verify drafts round otherwise than single ones, which flips near-ties; a fault "
    "looks the same in texts. To look closer, ask both for `logprobs` where a text first differs: "
    "a near-tie has two tokens that are almost as likely."
)


@dataclass(frozen=True, slots=True)
class Compared:
    """Greedy answers to one prompt. drafted: tokens, as the server tells; None if it does not.

    differs_at: the first character at which the server's answer is another; None if it is the same.
    is_stable: whether the reference gave the same answer twice.
    """

    prompt: str
    differs_at: int | None
    is_stable: bool
    drafted: int | None

    @property
    def text(self) -> str:
        told = "drafted tokens not told" if self.drafted is None else f"{self.drafted:,} drafted"
        if not self.is_stable:
            return f"{self.prompt}: undecided, the reference answers differently each time"
        found = "the same" if self.differs_at is None else f"differs at character {self.differs_at}"
        return f"{self.prompt}: {found}, {told}"


def compare(
    server: RemoteSession, reference: RemoteSession, is_stopped: Callable[[], bool]
) -> Iterator[Compared | str]:
    """Compare answers one prompt after another; texts tell which answer is waited for.

    Raises:
        ServerError: one of the two failed.
    """
    prompts = built_in_prompts()
    for number, prompt in enumerate(prompts, 1):
        place = f"prompt {number} of {len(prompts)}"
        try:
            yield f"{place}: the server answers"
            answer = _answer(server, prompt.text, is_stopped)
            drafted = server.told.report.drafted
            yield f"{place}: the reference answers, twice"
            plain, again = (_answer(reference, prompt.text, is_stopped) for _ in range(2))
        except PassStoppedError:
            return
        pairs = zip(f"{answer}\0", f"{plain}\1", strict=False)
        at = next(index for index, (one, other) in enumerate(pairs) if one != other)
        differs_at = None if answer == plain else at
        yield Compared(prompt.kind, differs_at, plain == again, drafted)


def _answer(session: RemoteSession, question: str, is_stopped: Callable[[], bool]) -> str:
    conversation = Conversation(turns=[Message("user", question)])
    reply = Reply(Request(conversation, _GREEDY, TOKENS))
    prompt, _ = session.prompt(reply.request)
    for _ in session.stream(prompt, reply, is_stopped):
        pass
    if is_stopped():
        raise PassStoppedError
    return reply.text


def verdict_on(
    server: RemoteSession, reference: RemoteSession, found: list[Compared], *, is_complete: bool
) -> dict[str, Any]:
    """The verdict, which is kept if it is one: for this address, model and build.

    lossless: None where nothing can be said.
    """
    decided = [one for one in found if one.is_stable]
    differing = [one for one in decided if one.differs_at is not None]
    drafted = [one.drafted for one in found if one.drafted is not None]
    url, build = server.connection.address.url, server.told.build
    lossless: bool | None = True
    if not decided:
        lossless, words = None, "undecided: the reference answers differently each time"
    elif differing:
        lossless, words = None, f"undecided: {len(differing)} of {len(decided)} texts differ"
    elif drafted and not sum(drafted):
        lossless, words = None, "undecided: the same answers, but the server drafted nothing"
    else:
        words = f"greedy answers to {len(decided)} prompts are the same"
        words += "" if drafted else "; the server does not tell whether it drafted"
    if differing or (lossless and is_complete):
        keep_verdict(server.paths, url, server.name, build, equal=lossless)
    so_far = "" if is_complete else " so far"
    return {
        "lossless": lossless,
        "complete": is_complete,
        "verdict": f"Verdict{so_far}: {words}: {server.name} at {url}, compared with "
        f"{reference.name} at {reference.connection.address.url}.{_DIFFER if differing else ''}",
        "url": url,
        "model": server.name,
        "build": build or None,
        "reference": reference.connection.address.url,
        "drafted": sum(drafted) if drafted else None,
        "findings": [asdict(one) for one in found],
    }
