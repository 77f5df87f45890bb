"""On-disk suffix index over earlier chats, which finds where the end of a text occurred before."""
