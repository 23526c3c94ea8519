"""Does the work of requests in processes of its own, so that no plan can slow down or end the service.

The service stores a job (`api.store.jobs`); a worker (`fleetwright worker`) claims it, runs it in a fresh process with
limits of memory and time, and stores result, audit entry and end of the job in one transaction.
docs/explanation/runtime/jobs.md has the states and what happens when a process dies.
"""
