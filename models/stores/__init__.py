"""Models on this machine: in our folder, and in those of other programs."""
