"""One call of each operation on jobs, sweeps and events, and of those on plans whose result only a job keeps."""

from typing import Any

from api.client import event_operations as events
from api.client import job_operations as jobs
from api.client import operations as op
from api.client import plan_operations as plans
from api.client.calls import Call
from api.schemas.power import CapPlanRequest
from tests.api.client.fault_examples import FAULT_SIMULATION
from tests.api.client.test_operations import PLACEMENT_REQUEST, PLAN_REQUEST, SIMULATION_REQUEST, SWEEP_REQUEST, TREE

JOB_EXAMPLES: dict[str, list[Call[Any]]] = {
    "create_sweep": [op.create_sweep(SWEEP_REQUEST)],
    "list_sweeps": [op.list_sweeps()],
    "get_sweep": [op.get_sweep("s")],
    "submit_plan": [op.submit_plan(PLAN_REQUEST)],
    "submit_sweep": [op.submit_sweep(SWEEP_REQUEST)],
    "submit_placement": [op.submit_placement(PLACEMENT_REQUEST)],
    "submit_power_simulation": [op.submit_power_simulation(SIMULATION_REQUEST)],
    "submit_power_plan": [op.submit_power_plan(CapPlanRequest(tree=TREE))],
    "submit_fault_simulation": [op.submit_fault_simulation(FAULT_SIMULATION)],
    "compare_plans": [plans.compare_plans("p", "q")],
    "explain_plan": [plans.explain_plan("p")],
    "replay_plan": [plans.replay_plan("p")],
    "list_jobs": [jobs.list_jobs()],
    "get_job": [jobs.get_job("j")],
    "cancel_job": [jobs.cancel_job("j")],
    "get_job_output": [jobs.get_job_output("j")],
    "follow_job": [jobs.follow_job("j")],
    "follow_events": [events.follow_events(follow=False).call],
}
