"""A lying model hub, and what a download from it must not do: `python -m scripts.hostile_hub`."""
