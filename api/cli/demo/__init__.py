"""The `demo` command: plan, apply and watch a simulated day on a local Ray cluster."""
