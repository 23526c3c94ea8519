"""Tests against real Ray, Kubernetes, PostgreSQL and Prometheus."""
