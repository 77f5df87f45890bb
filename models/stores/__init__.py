"""Where models lie on a machine: our folder, and those of other programs."""
