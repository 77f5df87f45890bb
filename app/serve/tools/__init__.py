"""Tools: what a program offers, and the calls in the text of a reply."""
