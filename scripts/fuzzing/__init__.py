"""Damaging files of every kind that specchat reads, and watching what its readers make of them."""
