"""The wall, or roofline: the highest rate that memory and disk allow plain decoding."""

from app.loading.streaming.pass_time import ReadRates


def wall(
    bytes_per_token: int, memory: float | None, streamed: int = 0, disk: float | None = None
) -> float | None:
    """Tokens a second at most; None where memory, or a disk that is read, was not measured.

    bytes_per_token: read in all, streamed of them from disk. memory, disk: bytes a second.
    """
    if memory is None:
        return None
    if not streamed:
        return memory / bytes_per_token
    if disk is None:
        return None
    return 1.0 / ReadRates(disk, memory).seconds(streamed, bytes_per_token)
