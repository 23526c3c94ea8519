"""Defines the HTTP contract, typed once for server and client.

Catalogue documents (`gpus`, `models`, `offers`, `topology`) are the frozen models of `fleet`; plan requests and plans
are those of `planner`.  This package adds the types of the API itself: problems, pages, tokens, targets, audit.
"""
