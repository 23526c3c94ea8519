"""Model shapes from Hugging Face `config.json` files."""
