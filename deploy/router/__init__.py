"""The router: which deployment a request goes to, and when (docs/router.md)."""
