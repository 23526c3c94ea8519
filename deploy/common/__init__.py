"""What several processes share: clocks, errors, leader election, liveness, HTTP helpers, Kubernetes access."""
