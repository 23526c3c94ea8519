"""Runs a recorder in a thread beside a process with another task."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from deploy.telemetry.recorder import MAX_SLEEP_S, Recorder

log = structlog.get_logger()

END_S = 10 * MAX_SLEEP_S  # to write the remaining observations


@contextmanager
def record_in_background(recorder: Recorder) -> Iterator[None]:
    """Record until the block ends.  The block continues if the recorder fails."""
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(recorder, stop), name="recorder", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # no thread can be started
        log.warning("recorder_not_started", reason=str(error))
        yield
        return
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)
        tally = recorder.tally
        log.info("recorded", polls=tally.polls, observations=tally.observations, late_polls=tally.late_polls)


def _run(recorder: Recorder, stop: threading.Event) -> None:
    try:
        recorder.run(stop)
    except Exception:
        log.exception("recorder_ended")
