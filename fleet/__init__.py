"""The vocabulary that all rooms share: GPUs, models, offers, topology, objectives, request sizes, demand."""
