"""Power curves: what boards draw, and what it costs to draw less."""
