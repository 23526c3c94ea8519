"""The console in a browser: the real service with its controller, an application, and pages that are watched."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from tests.deploy.actuators.serve_double import Deployment, ServeDouble
from tests.testbed.browser import Browser, Page
from tests.testbed.fault_bundles import node_diagnosis, report
from tests.testbed.gate import running_gate
from tests.testbed.server import ADMIN_TOKEN, ROOT, Server, running_servers

EXAMPLES = ROOT / "examples"
CREATE = {"If-None-Match": "*"}
PARTS = {"L4": "Small", "A100-80GB-SXM": "Medium", "H100-SXM": "Large"}
MEMBERS = {f"gpu-{index}": {"pool": "h100", "domains": [f"rack-{index // 8}"]} for index in range(64)}
LOADS = [[float(1 + (7 * expert * expert + 13 * layer) % 97) for expert in range(16)] for layer in range(4)]


@dataclass(frozen=True)
class Stage:
    """Holds the service, the application that its controller scales, and ids of what is stored."""

    server: Server
    application: ServeDouble
    ids: dict[str, str]

    @property
    def url(self) -> str:
        return self.server.url

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Call the API beside the browser, as another operator or a controller does."""
        sent = {
            "Authorization": f"Bearer {ADMIN_TOKEN}",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        answer = httpx.request(method, f"{self.url}/v1/{path}", json=body, headers=sent, timeout=120)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def evaluate_quarantine(self) -> None:
        self.call("POST", "faults/quarantine/evaluations", {"members": MEMBERS, "spares": {"h100": 8}})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run the service with something on every page.  The tests of a module share it, in order."""
    folder = tmp_path_factory.mktemp("console")
    double = ServeDouble(deployments={name: Deployment(requested=1, running=1) for name in PARTS.values()})
    with running_servers(folder) as start, running_gate() as gate:
        gate.behind["serve"] = double.answer
        server = start(f"sqlite+aiosqlite:///{folder}/fleet.db", rate_limit_per_s="100000", rate_limit_burst="100000")
        stage = Stage(server=server, application=double, ids={})
        fill(stage, dashboard_url=f"{gate.url}/serve/")
        yield stage


def fill(stage: Stage, *, dashboard_url: str) -> None:
    chat = yaml.safe_load((EXAMPLES / "chat.yaml").read_text())
    more = {"workloads": [chat["workloads"][0] | {"rate_rps": 55}]}
    impossible = chat | {"policy": {"budget_usd_per_h": 10}}
    named = "plans?name=busy%20day&labels=team%3Dsearch"
    for name, request, path in (("chat", chat, "plans"), ("more", more, named), ("impossible", impossible, "plans")):
        stage.ids[name] = stage.call("POST", path, request)["id"]
    sweep = {"request": chat, "axes": [{"knob": "rate", "factors": [1, 1.83]}]}
    stage.ids["sweep"] = stage.call("POST", "sweeps", sweep)["id"]
    application = {"kind": "ray_serve", "dashboard_url": dashboard_url, "application": "chat", "deployments": PARTS}
    stage.call("PUT", "targets/chat", {"workload": "chat", "application": application}, **CREATE)
    placement = {"loads": LOADS, "slots": 20, "gpus": 4, "nodes": 2}
    stage.ids["placement"] = stage.call("POST", "placements", placement)["id"]
    stage.call("PUT", "power/trees/hall", yaml.safe_load((EXAMPLES / "power-tree.yaml").read_text()), **CREATE)
    stage.ids["caps"] = stage.call("POST", "power/plans", {"tree_name": "hall"})["id"]
    row = {"servers": 46, "policy": "none", "days": 0.1, "seed": 3}
    stage.ids["simulation"] = stage.call("POST", "power/simulations", row)["id"]
    stage.ids["diagnosis"] = stage.call("POST", "faults/diagnoses", report(expires_in_s=7200))["id"]
    stage.call("POST", "faults/diagnoses", node_diagnosis("gpu-7") | {"expires_in_s": 7200})
    rules = stage.call("GET", "faults/quarantine/rules")["rules"] | {"mode": "recommend"}
    stage.call("PUT", "faults/quarantine/rules", rules, If_Match="*")
    stage.evaluate_quarantine()
    at = "2026-11-23T12:00:00Z"
    case = {"node": "gpu-7", "state": "quarantined", "stage": "draining", "since": at, "opened_at": at}
    case["actions"] = [{"at": at, "action": "drain", "detail": "the node takes no new work"}]  # type: ignore[assignment]
    stage.call("PUT", "faults/cases/case-1", case, **CREATE)


def addresses(stage: Stage) -> dict[str, str]:
    """Return the part of the address after `#/` of one page of each kind."""
    ids = stage.ids
    return {
        "fleet": "fleet",
        "target": "targets/chat",
        "plans": "plans",
        "new plan": "plans/new",
        "plan": f"plans/{ids['chat']}",
        "infeasible plan": f"plans/{ids['impossible']}",
        "compare": f"plans/compare?a={ids['chat']}&b={ids['more']}",
        "compare with now": f"plans/compare?a={ids['chat']}&target=chat",
        "apply": f"plans/{ids['chat']}/apply?target=chat",
        "sweep": f"plans/sweep?base={ids['chat']}&axis=rate&sweep={ids['sweep']}",
        "placements": "placements",
        "placement": f"placements/{ids['placement']}",
        "power": "power",
        "power tree": "power/trees/hall",
        "simulation": f"power/simulations/{ids['simulation']}",
        "health": "health",
        "diagnosis": f"health/diagnoses/{ids['diagnosis']}",
        "case": "health/cases/case-1",
        "audit": "audit",
        "sign in": "sign-in",
    }


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(stage: Stage, browser: Browser) -> Iterator[OpenPage]:
    """Open watched pages; none may have an error, or a request to another origin."""
    pages: list[tuple[Page, str]] = []

    def open_(*, signed_in: bool = True, url: str = stage.url, width: int = 1280) -> Page:
        page = browser.open(width=width)
        pages.append((page, url))
        page.allowed_statuses = {401}  # of the first request, which asks who the user is
        page.goto(f"{url}/")
        if signed_in:
            sign_in(page)
        return page

    yield open_
    for page, url in pages:
        assert page.problems == []
        assert page.requested
        assert page.other_origins(url) == []


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A page of a signed-in administrator, on the fleet."""
    return open_page()


def sign_in(page: Page) -> None:
    page.fill("API token", ADMIN_TOKEN)
    page.click("Sign in", tag="form button")
    page.wait_text("Every target")


def go(page: Page, address: str) -> None:
    page.evaluate(f"location.hash = {('#/' + address)!r}")
    page.wait(
        "document.querySelector('main h1') && !document.querySelector('.loading') && "
        f"decodeURIComponent(location.hash) === decodeURIComponent({('#/' + address)!r})",
        what=address,
    )
