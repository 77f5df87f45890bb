"""What to draft at each step: the controller and everything it decides by."""
