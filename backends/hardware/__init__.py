"""The machine: processor, memory, bandwidth, energy."""
