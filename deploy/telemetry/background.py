"""A recorder in a thread, beside a process that has something more important to do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from deploy.telemetry.recorder import MAX_SLEEP_S, Recorder

log = structlog.get_logger()

END_S = 10 * MAX_SLEEP_S  # to write out what was seen


@contextmanager
def record_in_background(recorder: Recorder) -> Iterator[None]:
    """Look until the block ends.  Whatever becomes of the recorder, the block goes on."""
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(recorder, stop), name="recorder", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the node has no thread to spare
        log.warning("recorder_not_started", reason=str(error))
        yield
        return
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)
        tally = recorder.tally
        log.info("recorded", looks=tally.looks, observations=tally.observations, late_polls=tally.late_polls)


def _run(recorder: Recorder, stop: threading.Event) -> None:
    try:
        recorder.run(stop)
    except Exception:
        log.exception("recorder_ended")
