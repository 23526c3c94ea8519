"""The node agent: it applies power caps and clocks to the GPUs of one node and reports their state."""
