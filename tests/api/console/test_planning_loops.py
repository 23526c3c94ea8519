"""Planning loops on the page of the fleet, in a browser."""

from datetime import UTC, datetime
from pathlib import Path

from api.client import Client
from api.schemas.planning_loops import PlanningLoopSpec, PlanningLoopStatus
from api.schemas.targets import TargetSpec
from api.server.examples import bodies
from tests.api.console.conftest import OpenPage
from tests.testbed.server import ADMIN_TOKEN, StartServer

MAIN = "document.querySelector('main')"


def test_the_fleet_shows_what_each_loop_observes_and_decides(
    start_server: StartServer, open_page: OpenPage, tmp_path: Path
) -> None:
    server = start_server(f"sqlite+aiosqlite:///{tmp_path}/fleet.db", "--no-controller")
    report = bodies()["put_planning_loop_status"] | {
        "phase": "holding",
        "observed_at": datetime.now(UTC).isoformat(),
        "problems": ["no samples of part H100"],
    }
    with Client(server.url, token=ADMIN_TOKEN) as client:
        client.create_target("chat", TargetSpec.model_validate(bodies()["put_target"]))
        page = open_page(url=server.url)
        page.wait_text("Every target", within=MAIN)
        assert "Planning loops" not in page.evaluate(f"{MAIN}.innerText"), "there is none"
        client.create_planning_loop("evening", PlanningLoopSpec.model_validate(bodies()["put_planning_loop"]))
        page.send("Page.reload")
        page.wait_text("evening", within=MAIN)
        page.wait_text("no report", within=MAIN)
        client.report_planning_loop_status("evening", PlanningLoopStatus.model_validate(report))
    page.send("Page.reload")
    for text in ("holding", "12.4", "3 H100", "no samples of part H100"):
        page.wait_text(text, within=MAIN)
