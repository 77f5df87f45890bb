"""Finds the recipe of the fastest self-drafter of a model on this machine.

Recipes are tried in the order of models/tuning/recipe_search.py, on replies of the model to
built-in prompts. Each result is saved at once, so that an interrupted run can be resumed.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.builtin_prompts import built_in_prompts
from app.drafting import self_drafter
from app.drafting.gain import Cost, expected_gain
from app.learned.calibrations import Calibrations
from app.learned.tuned_recipe import Tuned, TuningResults, remember, set_aside_unusable
from app.loading.checked_loader import CheckedLoader
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import (
    Context,
    DiskFullError,
    DraftUnavailableError,
    Model,
    ModelError,
    OutOfMemoryError,
    Rollback,
    UsageError,
)
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from backends.chat.template_process import TemplateProcess
from backends.engines.engine_facts import free_memory
from backends.engines.model_loading import derives, hold
from decoding.checks.agreement import Agreement, Reply, spoken
from decoding.estimation.cost import CostModel
from decoding.generation import Limits
from decoding.planning.draft_length import break_even
from decoding.sampling.settings import SamplingSettings
from models.metadata.memory_bill import bill, facts_of
from models.self_draft.recipe import Recipe, Skipped, can_cut
from models.self_draft.self_draft_store import CandidateFiles, Progress, SelfDrafts
from models.tuning.recipe_search import Ranked, RecipeSearch, Tried, bodies

_SETTINGS = SamplingSettings(temperature=0.8, seed=1)
"""Sampling settings of the measured replies and of acceptance."""

_REPLIES = 4
_REPLY_TOKENS = 32
_CONTEXT = 512


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Result of tuning. plain_seconds: duration of a plain step.

    needed: the acceptance from which the best recipe would pay, infinite where none does.
    is_steady: whether timings of the model's passes agreed; predictions rest on them.
    """

    target: str
    plain_seconds: float
    ranking: tuple[Ranked, ...]
    failed: dict[Recipe, str]
    needed: float
    is_steady: bool = True

    @property
    def best(self) -> Ranked:
        return self.ranking[0]

    @property
    def pays(self) -> bool:
        """Whether it is predicted to be faster than plain decoding."""
        return self.best.speedup > 1.0


@dataclass(slots=True)
class Tuning:
    """Tunes one loaded model.

    notify: gets a line on each phase; what it raises ends tuning, and the next one measures the
    rest. say: gets lines that the user should know of. tell: gets one on each recipe, as measured.
    lock_bytes: memory of a model that streams, which its candidates share; predicted speedups are
    those over plain decoding with the weights that are held beside the candidate.
    """

    target: Model
    paths: Paths
    gpu_layers: int | None
    notify: Callable[[str], None]
    say: Callable[[str], None]
    tell: Callable[[str], None] = lambda _text: None
    lock_bytes: int | None = None
    best_so_far: str = field(default="", init=False)
    """The best recipe and its predicted speedup, in words; empty before one was measured."""
    _failed: dict[Recipe, str] = field(default_factory=dict[Recipe, str], init=False)
    _results: TuningResults = field(init=False)

    def __post_init__(self) -> None:
        info = self.target.info
        if info.rollback is Rollback.NONE:
            what = f"{info.name} cannot be drafted for"
            raise DraftUnavailableError(what, f"it {info.rollback_refusal}")
        set_aside_unusable(info, self.paths, self.say)
        self._results = TuningResults(info, self.paths)

    def run(self) -> TuningResult:
        """Try recipes until no better one is predicted, and save the best.

        Raises:
            DiskFullError: results or candidates cannot be written; those before are kept.
            DraftUnavailableError: no recipe makes a drafter of this model.
            ModelError: the target cannot be run.
        """
        info = self.target.info
        n_ctx = min(_CONTEXT, info.context_limit)
        with ExitStack() as stack:
            context = stack.enter_context(closing(self.target.open(n_ctx)))
            files = CandidateFiles(SelfDrafts(self.paths.self_drafts), info, self._progress)
            stack.enter_context(closing(files))
            own = TargetContext(self.target, context)
            costs = Calibrations(self.paths, self.notify).target(self.target, own)
            agreement = Agreement(context, self._replies(context), info.n_vocab, _SETTINGS)
            search = RecipeSearch(
                info.n_layers,
                bodies(info),
                lambda acceptance, draw: expected_gain(costs, Cost(draw), acceptance),
                self._can_skip,
            )
            for recipe in search.recipes():
                self._try(recipe, search, agreement, files)
        return self._finished(search.ranking, costs)

    def _can_skip(self, skipped: Skipped) -> bool:
        """Whether the remaining layers work unchanged; views keep each at its index."""
        return derives(self.target.info) or can_cut(self.target.info, skipped)

    def _try(
        self, recipe: Recipe, search: RecipeSearch, agreement: Agreement, files: CandidateFiles
    ) -> None:
        """Measure a recipe unless that was done in an earlier run."""
        result = self._results.tried.get(recipe)
        if result is None:
            number = len(self._results.tried) + 1
            self.notify(f"recipe {number}: {recipe.text}{self._so_far}")
            result = self._measured(recipe, agreement, files)
            self._results.add(recipe, result)
            self.tell(f"recipe {number}: {recipe.text}: {_words(result)}")
        if isinstance(result, str):
            self._failed[recipe] = result
            search.fail(recipe)
            return
        search.learn(recipe, result)
        best = search.ranking[0]
        self.best_so_far = f"{best.recipe.text}, {best.speedup:.2f}× plain predicted"

    @property
    def _so_far(self) -> str:
        return f"; best so far {self.best_so_far}" if self.best_so_far else ""

    def _measured(self, recipe: Recipe, agreement: Agreement, files: CandidateFiles) -> Tried | str:
        try:
            self._hold_beside(None)
            self._require_memory(recipe)
            with (
                self._made(recipe, files) as model,
                closing(model.open(min(_CONTEXT, model.info.context_limit))) as context,
            ):
                return Tried(agreement.acceptance(context), agreement.draw_cost(context))
        except DiskFullError:
            raise
        except (DraftUnavailableError, ModelError, UsageError) as error:
            return error.summary

    @contextmanager
    def _made(self, recipe: Recipe, files: CandidateFiles) -> Generator[Model]:
        target = self.target
        with ExitStack() as stack:
            path = None if derives(target.info) else stack.enter_context(files.made(recipe))
            models = CheckedLoader(self.paths, self.notify)
            made = self_drafter.made(target, recipe, path, self.gpu_layers, models)
            stack.enter_context(closing(made))
            self._hold_beside(path)
            yield made

    def _hold_beside(self, candidate: Path | None) -> None:
        """Hold the weights of a model that streams in what a candidate leaves; None: hold none."""
        if self.lock_bytes is not None:
            taken = bill(facts_of(candidate), _CONTEXT).total if candidate else self.lock_bytes
            hold(self.target, max(self.lock_bytes - taken, 0))

    def _require_memory(self, recipe: Recipe) -> None:
        info = self.target.info
        free = free_memory(info.backend, self.gpu_layers)
        needed = self_drafter.added_bytes(info, recipe)
        if free is not None and needed > free:
            what = f"it needs {needed / 1e9:.1f} GB beside the model"
            raise OutOfMemoryError(what, f"{free / 1e9:.1f} GB are free")

    def _progress(self, recipe: Recipe) -> Progress:
        return lambda done, total: self.notify(
            f"making {recipe.text}: {done} of {total}{self._so_far}"
        )

    def _replies(self, context: Context) -> Sequence[Reply]:
        """Replies of an earlier run, else new ones to some built-in prompts."""
        replies = self._results.replies
        longest = max((len(reply.prompt) + len(reply.said) for reply in replies), default=0)
        if not 0 < longest < context.n_ctx:
            tokenizer = self.target.tokenizer
            limits = Limits(_REPLY_TOKENS, tokenizer.end_tokens)
            replies: list[Reply] = []
            with closing(TemplateProcess()) as templates:
                template = ChatTemplate(tokenizer, templates)
                for number, text in enumerate(_prompts(), start=1):
                    self.notify(f"generating an answer for comparison: {number}")
                    tokens = template.prompt([Message("user", text)]).tokens
                    if tokens and len(tokens) + _REPLY_TOKENS < context.n_ctx:
                        replies.append(spoken(context, tokens, _SETTINGS, limits))
            if not replies:
                raise DraftUnavailableError(
                    f"{self.target.info.name} cannot be tuned",
                    f"its context of {context.n_ctx} tokens holds no answer",
                )
            self._results.add_replies(replies)
        return replies

    def _finished(self, ranking: list[Ranked], costs: CostModel) -> TuningResult:
        info = self.target.info
        if not ranking:
            why = next(iter(self._failed.values()), "it has neither bits nor layers to spare")
            raise DraftUnavailableError(f"{info.name} cannot draft for itself", why)
        best = ranking[0]
        if not derives(info):
            self._hold_beside(None)
            progress = self._progress(best.recipe)
            SelfDrafts(self.paths.self_drafts).get(info, best.recipe, progress)
        remember(Tuned(best.recipe, best.tried.acceptance, best.fitted_cost), info, self.paths)
        self._results.remove()
        needed = break_even(costs, best.fitted_cost)
        plain = costs.seconds(1)
        return TuningResult(info.name, plain, tuple(ranking), self._failed, needed, costs.is_steady)


def _prompts() -> list[str]:
    shortest: dict[str, str] = {}
    for prompt in sorted(built_in_prompts(), key=lambda prompt: len(prompt.text)):
        shortest.setdefault(prompt.kind, prompt.text)
    return list(shortest.values())[:_REPLIES]


def _words(result: Tried | str) -> str:
    if isinstance(result, str):
        return result
    share = f"{100 * result.acceptance:.0f} % accepted"
    return f"{share}, a token costs {result.draw_cost:.2f} of a step"
