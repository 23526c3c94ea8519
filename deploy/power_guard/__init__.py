"""The guard as a process of its own, and the agents that obey it.

    guard   every period: hear all agents, `power.guard` takes one step, send its orders    (loop, agents, process)
    agent   holds what it was told as long as the guard is heard, else its own safe clocks  (agent, device)

Neither needs a database, Prometheus, Ray or the API.  docs/power/guard.md
"""
