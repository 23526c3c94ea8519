"""The fault monitor of one job, as a process: it receives batches from recorders and publishes diagnoses.

    ingest      batches to observations on one clock
    loop        evaluation four times a second            (outputs, api_reporter)
    process     the same behind HTTP, with metrics        (metrics)

`process.run_monitor` is the entry of `fleetwright faults monitor`; `faults.monitor` holds the detectors.  The process
only observes.  docs/explanation/faults/recorder.md
"""
