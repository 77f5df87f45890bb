"""Figures of a reply are published as snapshots, which a reply that goes on does not change."""

from contextlib import closing
from dataclasses import asdict

from app.engine.metrics import reply_metrics
from app.engine.reply import new_reply
from app.engine.report import reply_report
from app.loading.session_options import SessionOptions
from app.paths import Paths
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.scripted import ScriptedModel, opened

SETTINGS = SamplingSettings(temperature=0.0)
WORDS = ["one ", "two ", "three "]


def test_a_snapshot_stays_as_it_was_while_the_reply_goes_on() -> None:
    open_session = opened(ScriptedModel(WORDS))
    options, paths = SessionOptions(draft="off"), Paths.of_this_user()
    with closing(open_session(options, paths, lambda _: None)) as session:
        reply = new_reply()
        stream = session.stream(session.raw_prompt("hi"), SETTINGS, 100, reply, lambda: False)
        snapshots = [(reply_metrics(session, reply), len(reply.token_ids)) for _ in stream]
        last = reply_metrics(session, reply)
        report = reply_report(session, reply, SETTINGS, 100)
    assert [metrics.completion_tokens for metrics, _ in snapshots] == [
        tokens for _, tokens in snapshots
    ]
    assert len({metrics.context_used for metrics, _ in snapshots}) > 1
    figures = asdict(last)
    assert last.completion_tokens == len(WORDS) + 1
    assert len(reply.provenance) == len(reply.token_ids)
    assert {name: figures[name] for name in report["stats"]} == report["stats"] | {
        "peak_memory_bytes": last.peak_memory_bytes
    }
