"""What the server has done so far, in the text form that Prometheus reads."""

import contextlib

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app.engine.asking.answer import Answer
from app.serve.answers.turns import Turns

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_TTFT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self, turns: Turns) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"specchat_{name}", what, labels, registry=registry)

        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"specchat_{name}", what, registry=registry)

        self._responses = counter("responses", "Responses by path and status", "path", "status")
        self._gone = counter("disconnects", "Requests whose client went away before the end")
        self._prompt = counter("prompt_tokens", "Tokens of prompts, cached ones included")
        self._cached = counter("cached_prompt_tokens", "Tokens of prompts that were cached")
        self._completion = counter("completion_tokens", "Tokens of replies")
        self._steps = counter("steps", "Passes of the target that gave tokens of replies")
        self._drafted = counter("drafted_tokens", "Drafted tokens by drafter", "drafter")
        self._accepted = counter("accepted_tokens", "Accepted tokens by drafter", "drafter")
        self._prefill = counter("prefill_seconds", "Time spent on reading prompts")
        self._decode = counter("decode_seconds", "Time from first to last tokens of replies")
        self._rate = gauge("decode_tokens_per_second", "Decode rate of the last reply")
        self._speedup = gauge("speedup", "Decode rate of the last reply by that of plain decoding")
        gauge("requests_waiting", "Requests in the queue").set_function(lambda: turns.waiting)
        gauge("requests_answering", "Requests being answered").set_function(lambda: turns.answering)
        self._ttft = Histogram(
            "specchat_ttft_seconds",
            "Time from a request's turn to its first token",
            buckets=_TTFT_BUCKETS,
            registry=registry,
        )

    def count_response(self, path: str, status: int) -> None:
        """Count a response; path: one that is served, so that programs cannot make up labels."""
        self._responses.labels(path, str(status)).inc()

    def count_gone(self) -> None:
        """Count a client that went away."""
        self._gone.inc()

    def count_when_done(self, answer: Answer) -> None:
        """Count an answer once its figures are final: one that was stopped ends a step later."""
        uncounted = [answer]

        def count() -> None:
            if answer.is_done:
                with contextlib.suppress(IndexError):  # two threads may see that it is done
                    self.count_reply(uncounted.pop())

        answer.listen(count)

    def count_reply(self, answer: Answer) -> None:
        """Count what an answer took, complete or not."""
        metrics = answer.metrics
        if metrics is None:
            return
        self._prompt.inc(metrics.prompt_tokens)
        self._cached.inc(metrics.cached_prompt_tokens)
        self._completion.inc(metrics.completion_tokens)
        self._steps.inc(metrics.steps)
        self._prefill.inc(metrics.prefill_seconds or 0.0)
        self._decode.inc(metrics.decode_seconds or 0.0)
        for name, drafter in metrics.by_drafter.items():
            self._drafted.labels(name).inc(drafter.drafted)
            self._accepted.labels(name).inc(drafter.accepted)
        if metrics.ttft_seconds is not None:
            self._ttft.observe(metrics.ttft_seconds)
        if metrics.decode_tokens_per_second is not None:
            self._rate.set(metrics.decode_tokens_per_second)
        if metrics.speedup is not None:
            self._speedup.set(metrics.speedup)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
