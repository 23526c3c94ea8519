"""The routes, one module per thing that users name."""
