"""What llama.cpp would abort on in a model file, refused before it sees it."""
