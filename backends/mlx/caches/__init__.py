"""KV caches of MLX models: rollback, windows, token trees, passes prepared ahead."""
