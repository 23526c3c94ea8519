"""The actuator for Ray Serve applications."""
