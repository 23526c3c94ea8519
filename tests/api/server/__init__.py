"""Tests of the HTTP service, over ASGI."""
