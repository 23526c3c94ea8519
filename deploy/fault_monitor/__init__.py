"""The watcher of one job: recorders tell it what they see, it says what is wrong.  It acts on nothing.

    intake     batches in, aligned observations out; agents and their clocks     (agents, skew)
    loop       sees and judges; tells each verdict once                          (loop, tellers, bundles)
    process    the same behind HTTP, with metrics                                (watcher_app, metrics)

docs/faults/recorder.md
"""
