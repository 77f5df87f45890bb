"""Finding a model and making drafters' files. Holds code only; weights live in the cache."""
