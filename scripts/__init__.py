"""Small programs that do one thing for the project itself."""
