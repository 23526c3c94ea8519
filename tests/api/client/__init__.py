"""Tests of the client: requests, responses, errors and retries."""
