-- Tokens of answers that may be continued; a text alone does not tell them.
CREATE TABLE tokens (
    message INTEGER PRIMARY KEY REFERENCES messages ON DELETE CASCADE,
    tokens BLOB NOT NULL
);
