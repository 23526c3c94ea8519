"""Model shapes from Hugging Face `config.json` files: exact parameter counts, KV cache and experts.

`fleet.models` uses `architecture_fields` from `config`.  `families` has one row per supported `model_type`.
"""
