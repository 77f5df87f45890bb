CREATE TABLE chats (
    number INTEGER PRIMARY KEY,
    title TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL,
    system TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    removed REAL
);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    chat INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    ending TEXT NOT NULL,
    created REAL NOT NULL
);
CREATE INDEX messages_by_chat ON messages (chat, number);
CREATE VIRTUAL TABLE words USING fts5 (text, content='messages', content_rowid='number');
CREATE TRIGGER message_added AFTER INSERT ON messages BEGIN
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER message_gone AFTER DELETE ON messages BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF text ON messages BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.number, old.text);
    INSERT INTO words (rowid, text) VALUES (new.number, new.text);
END;
