"""Tests of the command line, the client, the HTTP service and its store."""
