"""JSON schemas as grammars, exactly or not at all."""
