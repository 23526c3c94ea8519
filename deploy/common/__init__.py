"""Code that several processes share: leader election, errors, clock, liveness, logging, HTTP, Kubernetes."""
