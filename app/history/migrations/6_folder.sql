-- The folder that questions are answered with; empty for none.
ALTER TABLE chats ADD COLUMN folder TEXT NOT NULL DEFAULT '';
