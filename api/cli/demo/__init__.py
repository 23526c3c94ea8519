"""The `demo` command: plan, apply and measure a simulated day on a local Ray cluster."""
