"""Expert loads and topology in; replica counts and slots out."""
