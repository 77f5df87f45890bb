"""Running a model: the contract (base), the engines behind it, and what the machine offers."""
