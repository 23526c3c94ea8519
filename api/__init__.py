"""Defines the HTTP contract, and contains the service, its store, its client and the command line."""
