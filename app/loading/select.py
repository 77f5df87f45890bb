"""Chooses the model to run, and downloads it if need be."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import DownloadError, SpecchatError
from backends.base.safe_files import make_private_folder, read_bounded, write_whole
from backends.engines.backend_selection import Form, backend_for, backend_for_form
from backends.hardware.host import available_memory
from models.hub import Downloaded, DownloadJob, DownloadRequest, HubSettings
from models.hub.progress import Phase, describe
from models.metadata.memory_bill import ModelFacts, facts_of_entry, facts_of_target
from models.reference import HubReference, Reference, at_hand, resolve
from models.stores.available_models import DEMO, best_installed

_LONGEST_NAME = 1 << 14
"""Bytes of a file that holds one name or path."""


def choose_model(
    name: str | None, paths: Paths, forms: Sequence[Form] = (Form.GGUF,)
) -> Reference | HubReference:
    """The first of `model_choices`."""
    return next(model_choices(name, paths, forms))


def model_choices(
    name: str | None, paths: Paths, forms: Sequence[Form] = (Form.GGUF,)
) -> Iterator[Reference | HubReference]:
    """The named model; else the last that answered, the best installed one, the bundled one.

    forms: file formats to look for, in order of preference. Each model is looked up when the
    iterator reaches it.

    Raises:
        SpecchatError: there is no such model, or the bundled one is not installed.
    """
    if name:
        yield resolve(name, paths.models, forms=forms)
        return
    last = _last_used(paths)
    if last is not None:
        yield last
    best = best_installed(paths.models, available_memory(), forms)
    if best is not None:
        reference = at_hand(resolve(best, paths.models))
        if last is None or reference.path != last.path:
            yield reference
    try:
        demo = at_hand(resolve(DEMO, paths.models))
    except SpecchatError:
        if last is None and best is None:
            raise
        return  # errors of the other models are more helpful
    if last is None or demo.path != last.path:
        yield demo


def expected_backend(reference: Reference | HubReference, wanted: str) -> str:
    """The backend that will run a model, also before its download.

    Raises:
        SpecchatError: no backend of this machine can run it.
    """
    if isinstance(reference, Reference):
        return backend_for(reference.path, wanted)
    return backend_for_form(reference.name, reference.form, wanted)


def remember_model(reference: Reference, paths: Paths) -> None:
    """Keep the name of a model that answered, for the next start without a name."""
    name = lasting_name(reference)
    if name == _last_name(paths):
        return
    with contextlib.suppress(OSError):
        make_private_folder(paths.data)
        write_whole(paths.last_model, os.fsencode(name))


def lasting_name(reference: Reference) -> str:
    """A name that finds a model again from any folder: its path if it has no other."""
    path = reference.path
    outside = path.name == reference.name and (path.suffix or path.is_dir())
    return str(path.resolve()) if outside else reference.name


def _last_used(paths: Paths) -> Reference | None:
    name = _last_name(paths)
    if not name:
        return None
    with contextlib.suppress(SpecchatError):
        reference = at_hand(resolve(name, paths.models))
        if reference.path.exists():
            return reference
    return None


def _last_name(paths: Paths) -> str:
    try:
        return os.fsdecode(read_bounded(paths.last_model, _LONGEST_NAME)).strip()
    except (OSError, ValueError):
        return ""


Notify = Callable[[str], None]

_REPORT_SECONDS = 0.1
_STOP_SECONDS = 0.5


def fetch_model(
    reference: Reference | HubReference, paths: Paths, notify: Notify, *, offline: bool
) -> Reference:
    """Return the installed model, downloading it first if needed.

    notify: receives a line of progress several times a second; an exception it raises stops the
    download, which the next one resumes.

    Raises:
        DownloadError: the download failed.
        UsageError: the repository has no such file.
    """
    if isinstance(reference, Reference):
        return reference
    settings = HubSettings.of_environment(paths.downloads, offline)

    try:
        request = request_for(reference)
        done = downloaded(request, settings, lambda text: notify(f"{reference.name}: {text}"))
    except DownloadError as error:
        # Offline, it is no news that the repository is not here.
        why = (settings.offline and error.why) or error.summary
        what = f"{reference.name} is not on this machine and cannot be downloaded"
        raise type(error)(what, why, error.remedy) from error
    return Reference(reference.name, done.path)


def stopped(job: DownloadJob) -> str:
    if job.progress.phase is Phase.ASKING:
        return "stopped before the download began"
    return "stopped; the downloaded part is kept, and the same command resumes it"


def request_for(reference: HubReference) -> DownloadRequest:
    return DownloadRequest(reference.repository, reference.file or reference.quantization)


def facts_before(reference: Reference | HubReference) -> ModelFacts | None:
    """Figures of the catalogue on a model before its download, if it has any."""
    if isinstance(reference, Reference) or not (reference.entry and reference.quantization):
        return None
    return facts_of_entry(reference.entry, reference.quantization)


def known_facts(chosen: Reference | HubReference, options: SessionOptions) -> ModelFacts | None:
    """Figures of a model as it would run: of its files, or of the catalogue if that has any.

    Raises:
        SpecchatError: no backend of this machine can run it, or its file is damaged.
    """
    backend = expected_backend(chosen, options.backend)
    is_here = isinstance(chosen, Reference)
    facts = facts_of_target(chosen.path, backend) if is_here else facts_before(chosen)
    return facts and facts.with_cache(options.cache_type)


def downloaded(request: DownloadRequest, settings: HubSettings, notify: Notify) -> Downloaded:
    """Download on another thread, so that an exception of notify stops it at any time.

    Raises:
        DownloadError: the download failed.
        UsageError: the repository has no such file.
    """
    job = DownloadJob(request, settings)
    try:
        notify(describe(job.progress))
        while not job.wait(_REPORT_SECONDS):
            notify(describe(job.progress))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(stopped(job))
        raise
    finally:
        job.stop()
        job.wait(_STOP_SECONDS)
    return job.result()
