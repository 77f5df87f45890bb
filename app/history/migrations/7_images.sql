-- Images are attachments whose text is base64, which is not for the index.
DROP TRIGGER attachment_added;
DROP TRIGGER attachment_gone;
CREATE TRIGGER attachment_added AFTER INSERT ON attachments WHEN new.kind <> 'image' BEGIN
    INSERT INTO attached_words (rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER attachment_gone AFTER DELETE ON attachments WHEN old.kind <> 'image' BEGIN
    INSERT INTO attached_words (attached_words, rowid, text)
        VALUES ('delete', old.number, old.text);
END;
