"""The client: what it sends, what it makes of answers, when it tries again."""
