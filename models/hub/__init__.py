"""Downloading models from a hub into the cache of huggingface_hub."""

from models.hub.download import Downloaded, DownloadJob, DownloadRequest, download
from models.hub.progress import HubSettings, Phase, Progress

__all__ = [
    "DownloadJob",
    "DownloadRequest",
    "Downloaded",
    "HubSettings",
    "Phase",
    "Progress",
    "download",
]
