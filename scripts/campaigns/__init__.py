"""Long-running robustness campaigns: kills, damaged files, soak."""
