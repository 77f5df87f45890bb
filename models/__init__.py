"""Finding, describing, downloading and tuning models; weights live in the cache."""
