"""Contains the routes, one module per resource."""
