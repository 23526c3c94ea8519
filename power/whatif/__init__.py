"""What-if runs of a row of servers behind a budget; `power.whatif.run.run_whatif` is the entry point.

`request` and `response` are the documents of API and command line.
"""
