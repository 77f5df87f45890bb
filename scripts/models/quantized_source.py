"""A source model, quantized first if that is asked for."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from backends.llamacpp.requantize import requantize


@contextmanager
def quantized_source(source: Path, quantization: str | None, beside: Path) -> Generator[Path]:
    """The source itself, or a quantized copy in the folder of a file, kept for the block.

    Raises:
        SpecchatError: it cannot be quantized.
    """
    if quantization is None:
        yield source
        return
    with TemporaryDirectory(dir=beside.parent) as folder:
        quantized = Path(folder) / "quantized.gguf"
        for _ in requantize(source, quantized, quantization):
            pass
        yield quantized
