"""The wire contract: what crosses HTTP, typed once for server and client.

Catalogue documents (`gpus`, `models`, `offers`, `topology`) are the frozen models of `fleet`; plan requests and answers
are those of `planner`.  This package adds what exists only on the wire: problems, pages, tokens, targets, audit.
"""
