"""What is checked of a grammar before it is compiled, as some would end the process."""
