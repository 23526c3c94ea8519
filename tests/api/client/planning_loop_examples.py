"""One call of each operation on planning loops."""

from typing import Any

from api.client import planning_loop_operations as loops
from api.client.calls import Call
from api.schemas.leases import LeaseTerm
from api.schemas.planning_loops import LoopPlanRequest, PlanningLoopSpec, PlanningLoopStatus
from api.server.examples import bodies

LOOP = PlanningLoopSpec.model_validate(bodies()["put_planning_loop"])
LOOP_STATUS = PlanningLoopStatus.model_validate(bodies()["put_planning_loop_status"])
LOOP_PLAN = LoopPlanRequest.model_validate(bodies()["set_planning_loop_plan"])
HELD = LeaseTerm("controller", 1)
PLANNING_LOOP_EXAMPLES: dict[str, list[Call[Any]]] = {
    "list_planning_loops": [loops.list_planning_loops()],
    "get_planning_loop": [loops.get_planning_loop("l")],
    "create_planning_loop": [loops.create_planning_loop("l", LOOP)],
    "replace_planning_loop": [loops.replace_planning_loop("l", LOOP, if_match='"1-a"')],
    "delete_planning_loop": [loops.delete_planning_loop("l", if_match='"1-a"')],
    "get_planning_loop_status": [loops.get_planning_loop_status("l")],
    "report_planning_loop_status": [loops.report_planning_loop_status("l", LOOP_STATUS)],
    "list_planning_loop_statuses": [loops.list_planning_loop_statuses()],
    "set_planning_loop_plan": [loops.set_planning_loop_plan("l", LOOP_PLAN, held=HELD)],
}
