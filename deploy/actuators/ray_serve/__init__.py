"""Ray Serve applications, through the REST API of the Ray dashboard."""
