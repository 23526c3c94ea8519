"""Power as a quota for Kueue: a controller of admission checks (docs/explanation/power/job-admission.md).

`run_power_check` is the entry point.  `power.job_admission` decides; this package reads and writes the cluster.
"""
