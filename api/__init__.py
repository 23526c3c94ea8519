"""The contract, the service, its store, its client and its command line."""
