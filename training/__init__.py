"""What is trained on this machine: heads and drafters, from a target's own answers."""
