-- Messages become a tree. The numbers of what was deleted are retired: another window may still hold
-- them. The words of an answer are indexed when it has ended: saving it at each paint then costs a
-- tenth.
ALTER TABLE chats ADD COLUMN shown INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN parent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN shown INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN lossy TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN writer TEXT NOT NULL DEFAULT '';
UPDATE messages SET
    parent = coalesce((SELECT max(number) FROM messages AS other
        WHERE other.chat = messages.chat AND other.number < messages.number), 0),
    shown = coalesce((SELECT min(number) FROM messages AS other
        WHERE other.chat = messages.chat AND other.number > messages.number), 0);
UPDATE chats SET shown = coalesce((SELECT min(number) FROM messages WHERE chat = chats.number), 0);
UPDATE chats SET title = '' WHERE title = (SELECT title_of(CAST(text AS BLOB))
    FROM messages WHERE number = chats.shown AND role = 'user');
DROP INDEX messages_by_chat;
CREATE INDEX messages_by_chat ON messages (chat, number, shown);
DROP TRIGGER message_added;
DROP TRIGGER message_gone;
DROP TRIGGER message_changed;
CREATE TRIGGER message_added AFTER INSERT ON messages WHEN new.writer = '' BEGIN
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER message_gone AFTER DELETE ON messages WHEN old.writer = '' BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF text, writer ON messages
WHEN '' IN (old.writer, new.writer) BEGIN
    INSERT INTO words (words, rowid, text)
        SELECT 'delete', old.number, old.text WHERE old.writer = '';
    INSERT INTO words (rowid, text) SELECT new.number, new.text WHERE new.writer = '';
END;
CREATE INDEX growing_messages ON messages (number) WHERE writer <> '';
CREATE TABLE attachments (
    number INTEGER PRIMARY KEY,
    message INTEGER NOT NULL REFERENCES messages ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX attachments_by_message ON attachments (message, number);
CREATE VIRTUAL TABLE attached_words
    USING fts5 (text, content='attachments', content_rowid='number');
CREATE TRIGGER attachment_added AFTER INSERT ON attachments BEGIN
    INSERT INTO attached_words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER attachment_gone AFTER DELETE ON attachments BEGIN
    INSERT INTO attached_words (attached_words, rowid, text)
        VALUES ('delete', old.number, old.text);
END;
CREATE TABLE queue (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    chat INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
    text TEXT NOT NULL,
    attachments TEXT NOT NULL
);
CREATE INDEX queue_by_chat ON queue (chat, number);
CREATE TABLE retired (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER message_number_retired AFTER DELETE ON messages BEGIN
    INSERT INTO retired VALUES ('messages', old.number)
        ON CONFLICT (name) DO UPDATE SET number = max(number, excluded.number);
END;
CREATE TRIGGER chat_number_retired AFTER DELETE ON chats BEGIN
    INSERT INTO retired VALUES ('chats', old.number)
        ON CONFLICT (name) DO UPDATE SET number = max(number, excluded.number);
END;
