"""Power management of rows and feeds, as pure functions: power trees, caps, policies, the guard, simulation and
forecasts.

Entry points: `power.caps.plan_caps`, `power.guard.Guard`, `power.simulator.simulate`, `power.policies.policy_named`.
docs/explanation/power/index.md has a map.
"""
