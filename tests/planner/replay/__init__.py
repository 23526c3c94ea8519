"""The replay: its kernel against a plain simulator, what must hold of any run, verdicts and headroom."""
