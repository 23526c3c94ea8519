"""The `router` command: send each request to the deployment that its plan assigns."""
