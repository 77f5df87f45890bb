"""Running a model in a child process first, so that a crash ends only the child."""
