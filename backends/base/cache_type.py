"""Types in which a KV cache may keep its numbers."""

from enum import StrEnum


class CacheType(StrEnum):
    """Type of keys and values, by llama.cpp's name for it.

    A choice of the model's own arithmetic: logits differ between types, and drafting is lossless
    in each. Keys and values have the same one, as builds for CUDA and Metal demand.
    """

    F16 = "f16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"

    @property
    def number_bytes(self) -> float:
        """Bytes of a number; quantized types add a half float to each block of 32."""
        return _NUMBER_BYTES[self]


_NUMBER_BYTES = {CacheType.F16: 2.0, CacheType.Q8_0: 34 / 32, CacheType.Q4_0: 18 / 32}
