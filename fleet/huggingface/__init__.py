"""Model shapes from Hugging Face `config.json` files: exact parameter counts, KV cache and experts.

`fleet.models` uses `config.decoder_facts`.  `families` has one row per supported `model_type`.
"""
