"""The prompt: text area, completion and file token counts."""
