"""Settings: what there is to set, the file, variables, and what is set for one chat."""
