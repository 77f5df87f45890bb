"""Headers and settings of model files, read without an engine and without trusting them.

What reads a file raises a ModelError where it is missing, unreadable, damaged or cut short.
"""
