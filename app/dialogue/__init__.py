"""A chat as a tree: its questions and answers, their versions, and the questions that wait."""
