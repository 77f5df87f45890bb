"""Reading the tokenizer of an MLX folder and its settings."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer as Engine

from backends.base import ModelError
from backends.files.mlx_folder import REMEDY, read_settings
from backends.mlx.mlx_tokenizer import MlxTokenizer

_MAX_TEMPLATE = 1 << 20
_OTHER_FORMS = ("tokenizer.model", "vocab.json", "vocab.txt")
"""Files of other tokenizer formats, which transformers may convert."""


def read_engine(folder: Path) -> Engine:
    """Read the tokenizer of a folder, without running code from the folder.

    Raises:
        ModelError: there is none, or it cannot be read.
    """
    file = folder / "tokenizer.json"
    if file.is_file():
        return _made(file, lambda: Engine.from_file(str(file)))
    for name in _OTHER_FORMS:
        if (folder / name).is_file():
            return _made(folder / name, lambda: _converted(folder))
    raise ModelError(f"there is no tokenizer in {folder}", "tokenizer.json is missing", REMEDY)


def _converted(folder: Path) -> Engine:
    from transformers import AutoTokenizer

    loaded: Any = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    engine = loaded.backend_tokenizer
    assert isinstance(engine, Engine), "it needs a tokenizer.json"
    return engine


def _made(file: Path, make: Callable[[], Engine]) -> Engine:
    try:
        engine = make()
        # Settings from training: prompts must not be truncated or padded.
        engine.no_truncation()
        engine.no_padding()
        engine.encode("A text.")
        return engine
    except Exception as error:  # the libraries raise nothing more precise
        reason, cause = str(error), error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # the library is written in Rust
            raise
        reason, cause = str(error), error
    why = f"its tokenizer cannot be read ({' '.join(reason.split())[:200]})"
    raise ModelError(f"{file} is damaged or of an unknown kind", why, REMEDY) from cause


def read_tokenizer(
    folder: Path, config: dict[str, Any], n_vocab: int, engine: Engine | None = None
) -> MlxTokenizer:
    """Read the tokenizer of a folder, with its chat template and its begin and end tokens.

    Raises:
        ModelError: a settings file is damaged, or the tokenizer belongs to another model.
    """
    engine = engine or read_engine(folder)
    largest = max(engine.get_vocab(with_added_tokens=False).values(), default=-1)
    if largest >= n_vocab:
        raise ModelError(
            f"the tokenizer in {folder} belongs to another model",
            f"it has {largest + 1:,} tokens, and the weights {n_vocab:,}",
            REMEDY,
        )
    settings = read_settings(folder / "tokenizer_config.json")
    generation = read_settings(folder / "generation_config.json")

    def named(key: str) -> int | None:
        """Token that the settings give by its text."""
        text = settings.get(key)
        if isinstance(text, dict):
            text = cast("dict[str, Any]", text).get("content")
        number = engine.token_to_id(text) if isinstance(text, str) else None
        return number if number is not None and number < n_vocab else None

    eos = named("eos_token")
    ends = _ends(config) | _ends(generation) | ({eos} if eos is not None else set())
    return MlxTokenizer(
        engine,
        n_vocab=n_vocab,
        end_tokens=frozenset(number for number in ends if 0 <= number < n_vocab),
        template=_template(folder, settings),
        bos=named("bos_token"),
        adds_bos=settings.get("add_bos_token") is True,
        eos=eos,
    )


def _ends(settings: dict[str, Any]) -> set[int]:
    value = settings.get("eos_token_id")
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    return {number for number in listed if type(number) is int}


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """Chat template: from a separate file, otherwise from the settings (one, or several named)."""
    file = folder / "chat_template.jinja"
    try:
        if file.stat().st_size <= _MAX_TEMPLATE:
            return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}", str(error), REMEDY) from error
    template = settings.get("chat_template")
    if template is None:
        template = read_settings(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        listed = [entry for entry in cast("list[object]", template) if isinstance(entry, dict)]
        entries = cast("list[dict[str, object]]", listed)
        template = {str(entry.get("name")): entry.get("template") for entry in entries}
    if isinstance(template, dict):
        template = cast("dict[str, object]", template).get("default")
    return template if isinstance(template, str) else None
