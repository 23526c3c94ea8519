"""Everything that runs beside or acts on Ray, Kubernetes, GPUs and nodes, one folder per process.

docs/explanation/architecture.md has the map of the folders and the table of the processes.
"""
