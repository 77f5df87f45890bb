"""Developer tools, each runnable as `python -m scripts.name`; never imported by the app."""
