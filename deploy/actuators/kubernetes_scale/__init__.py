"""The actuator for Kubernetes objects with a `scale` subresource."""
