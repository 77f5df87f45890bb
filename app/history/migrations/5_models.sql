-- The model that wrote an answer: versions of it may be of several.
ALTER TABLE messages ADD COLUMN model TEXT NOT NULL DEFAULT '';
