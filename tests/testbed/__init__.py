"""Provides real Kubernetes, Ray, PostgreSQL, Prometheus and network parts as pytest fixtures."""
