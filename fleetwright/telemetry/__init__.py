"""Transport of observation batches to the fault monitor, shared by recorders and ranks.

`BatchSender` paces and posts batches; `batch_format` has the constants of the format.
"""
