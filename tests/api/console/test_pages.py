"""Every page of the console in a browser: what it shows, without errors, for people who read and who listen."""

import json

import pytest

from tests.api.console.conftest import OpenPage, Stage, addresses, go
from tests.testbed.axe import serious_findings
from tests.testbed.browser import Page
from tests.testbed.fault_bundles import HANG

SHOWN = {
    "fleet": ["Targets", "chat", "Drift", "not frozen"],
    "target": ["Replicas", "Small", "Specification", "observe"],
    "plans": ["Stored plans", "infeasible", "$12.12", "busy day", "team=search", "New plan"],
    "new plan": ["Workload 1", "First token, p99 ms", "The request is valid"],
    "plan": ["$12.12", "2.8 kW", "Mix", "Cost per hour", "Routing", "nothing cheaper exists", "One GPU type alone"],
    "infeasible plan": ["No mix meets the request", "way out: 2.12 $/h more budget"],
    "compare": ["$12.12", "$21.45", "+$9.33", "Routing", "workloads[0].rate_rps", "55"],
    "compare with now": ["now on chat", "Replicas of each part", "H100-SXM"],
    "apply": ["What changes", "Point the target at this plan", "A100-80GB-SXM"],
    "sweep": ["Cost against load and limits", "Pareto", "Requests per second"],
    "placements": ["Stored placements", "Imbalance"],
    "placement": ["Load of each GPU in each layer", "Experts on GPUs", "Export", "Bound"],
    "power": ["Power trees", "hall", "Simulations", "Brakes"],
    "power tree": ["row-4", "pdu-1", "Caps", "summaries", "Load of each feed"],
    "simulation": ["46 servers under policy none", "Brakes", "Assumptions"],
    "health": ["gpu-7", "Disruption budget and breaker", "Diagnoses", "noncomm hang", "case-1"],
    "diagnosis": ["noncomm hang", "Evidence", "Replay the bundle"],
    "case": ["gpu-7", "the node takes no new work"],
    "audit": ["plan.created", "target.created", "Check the chain"],
    "sign in": ["API token"],
}


def test_every_page_shows_its_content_and_survives_a_reload(page: Page, stage: Stage) -> None:
    found = addresses(stage)
    assert found.keys() == SHOWN.keys()
    for name, address in found.items():
        go(page, address)
        for text in SHOWN[name]:
            page.wait_text(text, within="document.querySelector('main')")
        page.send("Page.reload")
        for text in SHOWN[name]:
            page.wait_text(text, within="document.querySelector('main')")
        assert page.evaluate("document.title").endswith("Fleetwright"), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_finding_of_axe(page: Page, stage: Stage, axe: str, scheme: str) -> None:
    page.prefer(scheme)
    for name, address in addresses(stage).items():
        go(page, address)
        page.wait_text(SHOWN[name][-1], within="document.querySelector('main')")
        assert serious_findings(page, axe) == [], f"{name}, {scheme}"


def test_a_dialog_has_no_serious_finding_of_axe(page: Page, axe: str) -> None:
    page.click("Freeze …")
    page.wait_text("Every write to every target stops", within="document.querySelector('dialog')")
    assert serious_findings(page, axe) == []
    page.click("Cancel", within="document.querySelector('dialog')")


@pytest.mark.parametrize("width", [640, 960, 1600])
def test_no_page_is_wider_than_the_window(open_page: OpenPage, stage: Stage, width: int) -> None:
    page = open_page(width=width)
    for name, address in addresses(stage).items():
        go(page, address)
        page.wait_text(SHOWN[name][-1], within="document.querySelector('main')")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_the_theme_follows_the_system_until_the_user_chooses(page: Page) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.prefer("light")
    light = background()
    page.prefer("dark")
    dark = background()
    assert light != dark
    page.send("Page.reload")
    page.click("Light")
    assert background() == light
    page.send("Page.reload")
    page.wait_text("Every target")
    assert background() == light, "the choice survives a reload"
    page.evaluate("localStorage.clear()")


def test_a_sweep_from_the_page_plans_each_factor(page: Page, stage: Stage) -> None:
    go(page, f"plans/sweep?base={stage.ids['chat']}")
    page.fill("By", "0.5, 1, 1.5")
    page.click("Run the sweep")
    page.wait("document.querySelectorAll('.chart circle').length === 3", what="three points")
    page.wait("location.hash.includes('sweep=')", what="the sweep in the address")
    page.send("Page.reload")
    page.wait("document.querySelectorAll('.chart circle').length === 3", what="three points after a reload")
    rates = page.evaluate(
        "[...document.querySelector('tbody').querySelectorAll('td:nth-child(2)')].map(each => each.innerText)"
    )
    assert rates == ["15", "30", "45"]
    page.fill("By", "0, x")
    page.click("Run the sweep")
    page.wait_text("allowed are 1 to 100 numbers above 0")


def test_evidence_is_replayed_from_the_page(page: Page, stage: Stage) -> None:
    go(page, f"health/diagnoses/{stage.ids['diagnosis']}")
    page.click("Replay the bundle")
    page.wait_text("This version gives the same diagnoses, bit for bit.")
    assert f"rank {HANG.behind}" in page.evaluate("document.querySelector('main').innerText")


def test_the_chain_of_the_audit_is_checked_from_the_page(page: Page) -> None:
    go(page, "audit")
    page.click("Check the chain")
    page.wait("/chain of \\d+ entries is intact/.test(document.querySelector('main').innerText)")


def test_a_plan_is_exported(page: Page, stage: Stage) -> None:
    go(page, f"plans/{stage.ids['chat']}")
    page.evaluate(
        "window.saved = []; URL.createObjectURL = blob => (blob.text().then(text => saved.push(text)), 'data:,')"
    )
    page.click("Export the plan as JSON")
    page.click("Export the request as YAML")
    page.wait("saved.length === 2")
    record, request = page.evaluate("saved")
    assert json.loads(record)["id"] == stage.ids["chat"]
    assert request.startswith("workloads:\n  - name: chat\n    rate_rps: 30\n")
    assert "null" not in request
    assert "arrival_cv" not in request, "defaults are left out"
