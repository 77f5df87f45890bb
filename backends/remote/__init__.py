"""A model on another machine, whose specchat verifies what is drafted here."""
