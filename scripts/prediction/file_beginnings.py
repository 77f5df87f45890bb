"""Beginnings of files, which a model continues."""

BEGINNINGS = {
    "python": (
        '"""A shop: items, a cart, and what an order costs."""\n\n'
        "from dataclasses import dataclass, field\n\n\n"
        "@dataclass\nclass Item:\n    name: str\n    price: float\n\n\n"
        "@dataclass\nclass Cart:\n    items: list[Item] = field(default_factory=list)\n\n"
    ),
    "javascript": (
        "// A list of tasks that is kept in the browser.\n\n"
        "class Task {\n  constructor(title, due) {\n    this.title = title;\n"
        "    this.due = due;\n    this.done = false;\n  }\n}\n\nclass TaskList {\n"
    ),
    "html": (
        "<!DOCTYPE html>\n<html>\n<head>\n  <title>Our garden</title>\n</head>\n<body>\n"
        "  <h1>What grows in our garden</h1>\n  <p>"
    ),
    "settings": (
        '# Settings of the weather station\n[station]\nname = "north"\ninterval = 60\n\n'
        '[sensors.temperature]\nunit = "celsius"\nlowest = -40\nhighest = 60\n\n'
        "[sensors.wind]\n"
    ),
    "letter": (
        "Dear Ms Keller,\n\nThank you for your letter of the third of May about the repair of the "
        "roof. We have looked at the plans, and"
    ),
}
"""Text by kind of file."""
