"""The data model that all packages share: GPUs, models, offers, topology, SLOs, request sizes and demand.

`fleet.documents.read_model` reads a YAML or JSON document into a frozen model.  `builtin_gpus`, `builtin_models` and
`builtin_prices` return the catalogues that ship with the product.  `fleet.solvers` runs linear programs.
"""
