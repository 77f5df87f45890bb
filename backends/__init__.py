"""Running a model: the contract (base), its engines, model files and the machine."""
