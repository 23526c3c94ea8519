"""The replay: its kernel against a reference simulator, properties of any run, SLO checks and headroom."""
