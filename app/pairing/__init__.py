"""Which drafter suits a model on this machine: candidates, rankings, tuning."""
