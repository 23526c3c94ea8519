"""Why a plan is as it is: what binds, what else there was, what conflicts, what nobody could do better.

`planner.explain.explanation.explain` is the entry; docs/explanation.md says what each part means.
"""
