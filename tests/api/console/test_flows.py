"""What people do in the console, from the first click to the effect: in a browser, on the real service."""

import json
from pathlib import Path

import pytest

from tests.api.console.conftest import OpenPage, Stage, go
from tests.testbed.browser import Page
from tests.testbed.server import ADMIN_TOKEN, StartServer
from tests.testbed.waiting import wait_for

MAIN = "document.querySelector('main')"
AREA = "document.querySelector('textarea')"
TEXT = f"{AREA}.value"


def confirm(page: Page, answer: str) -> None:
    page.click(answer, within="document.querySelector('dialog')")


def write(page: Page, text: str) -> None:
    """Replace the text of the request."""
    page.evaluate(f"(at => {{ at.value = {json.dumps(text)}; at.dispatchEvent(new Event('input')); }})({AREA})")


def focused(page: Page) -> str:
    script = "(at => at.ariaLabel || at.labels?.[0]?.innerText || at.innerText || '')(document.activeElement).trim()"
    return str(page.evaluate(script))


def tab_to(page: Page, name: str, *, at_most: int = 60) -> None:
    """Move the focus with the keyboard alone to the control with this name."""
    for _ in range(at_most):
        page.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"{name!r} is not reached within {at_most} presses of Tab")


def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(open_page: OpenPage, stage: Stage) -> None:
    page = open_page(signed_in=False)
    page.wait_text("Sign in", within=MAIN)
    page.fill("API token", f"fw_{'x' * 12}_{'y' * 43}")
    page.click("Sign in", tag="form button")
    page.wait_text("This token is unknown, expired or revoked")
    page.fill("API token", ADMIN_TOKEN)
    page.click("Sign in", tag="form button")
    page.wait_text("Every target")
    assert page.evaluate("document.cookie") == ""
    stored = page.evaluate("JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)])")
    assert ADMIN_TOKEN not in stored
    page.send("Page.reload")
    page.wait_text("Every target")
    page.click("Sign out")
    page.wait_text("API token")
    (opened, ended) = [each for each in stage.call("GET", "audit")["items"] if each["action"].startswith("session.")][
        :2
    ][::-1]
    assert (opened["action"], ended["action"]) == ("session.opened", "session.ended")
    assert opened["subject"] == ended["subject"]


def test_the_form_and_the_text_change_each_other_and_the_api_validates(page: Page) -> None:
    page.allowed_statuses.add(422)  # of requests that are invalid on purpose
    go(page, "plans/new")
    page.wait_text("The request is valid")
    page.fill("Rate, requests/s", "35.5")
    assert "rate_rps: 35.5" in page.evaluate(TEXT)
    page.fill("Rate, requests/s", "fast")
    page.wait_text("workloads[0].rate_rps", within="document.querySelector('.errors')")
    invalid = "document.querySelector('[data-path=\"workloads[0].rate_rps\"]').getAttribute('aria-invalid')"
    assert page.evaluate(invalid) == "true"
    described = f"document.getElementById({page.label('Rate, requests/s')}.getAttribute('aria-describedby')).innerText"
    assert "number" in page.evaluate(described)

    text = page.evaluate(TEXT).replace("rate_rps: fast", "rate_rps: 12")
    write(page, text.replace("Llama-3.1-8B", "Llama-3.1-9B"))
    page.wait(f"{page.label('Rate, requests/s')}.value === '12'", what="the form with the text's rate")
    page.wait_text("Llama-3.1-8B", within="document.querySelector('.errors')")  # the nearest name
    page.fill("Model", "Llama-3.1-8B")
    page.wait_text("The request is valid")
    write(page, "workloads: [{name: chat")
    page.wait_text("The text cannot be read")
    page.wait_text("line 1: has a bracket that is not closed")
    page.click("Start over")
    page.wait_text("The request is valid")
    page.click("JSON")
    assert json.loads(page.evaluate(TEXT))["workloads"][0]["name"] == "chat"


def test_a_plan_is_made_with_the_keyboard_alone(open_page: OpenPage, stage: Stage) -> None:
    page = open_page(signed_in=False)
    page.wait_text("API token")
    tab_to(page, "API token")
    page.type(ADMIN_TOKEN)
    page.press("Enter")
    page.wait_text("Every target")
    page.press("Tab")
    tab_to(page, "Plans")
    page.press("Enter")
    page.wait_text("Stored plans")
    assert focused(page) == "Plans", "the heading of the new page has the focus"
    tab_to(page, "New plan")
    page.press("Enter")
    page.wait_text("The request is valid")
    tab_to(page, "Rate, requests/s")
    page.evaluate("document.activeElement.select()")
    page.type("6")
    tab_to(page, "Replay, hours")
    page.evaluate("document.activeElement.select()")
    page.type("0.05")
    tab_to(page, "Time limit, s")
    page.type("90")  # beside other tests, the plan and its replay take longer than the default
    page.wait_text("The request is valid")
    for _ in range(60):
        page.press("Tab", shift=True)
        if focused(page) == "Plan":
            break
    page.press("Enter")
    page.wait("/plans\\/[0-9a-f-]{36}$/.test(location.hash)", what="the plan")
    page.wait_text("SLO, measured in the replay")
    plan = stage.call("GET", f"plans/{page.evaluate('location.hash').removeprefix('#/plans/')}")
    assert plan["request"]["workloads"][0]["rate_rps"] == 6
    assert plan["name"] is None
    assert plan["plan"]["verified"] is True


def test_a_plan_is_named_and_found_by_its_name_its_labels_and_its_result(page: Page, stage: Stage) -> None:
    go(page, "plans/new")
    page.wait_text("The request is valid")
    page.fill("Name of the plan", "small night")
    page.fill("Rate, requests/s", "2")
    page.fill("Replay, hours", "0.01")
    page.wait_text("The request is valid")
    page.click("Plan", within=MAIN)
    page.wait("/plans\\/[0-9a-f-]{36}$/.test(location.hash)", what="the plan")
    page.wait_text("small night", within="document.querySelector('h1')")

    only = "document.querySelectorAll('main tbody tr').length === 1"
    go(page, "plans")
    for label, text, shown in (
        ("Name begins with", "small", "small night"),
        ("Name begins with", "", "busy day"),
        ("Labels", "team=search", "busy day"),
    ):
        page.wait_text("Stored plans")
        page.fill(label, text)
        page.wait(only if text else f"!({only})", what=f"the plans with {label} {text!r}")
        page.wait_text(shown, within=MAIN)
    page.fill("Result", "infeasible")
    page.wait_text("No plan fits these filters", within=MAIN)
    page.fill("Labels", "")
    page.wait(only, what="the infeasible plan")
    assert len(stage.call("GET", "plans?name=small")["items"]) == 1


def test_a_plan_that_takes_long_shows_its_progress_and_is_cancelled(page: Page, stage: Stage) -> None:
    go(page, "plans/new")
    page.fill("Rate, requests/s", "60")
    page.fill("Replay, hours", "9")
    page.wait_text("The request is valid")
    page.click("Plan", within=MAIN)
    (job,) = wait_for(lambda: stage.call("GET", "jobs?state=running&kind=plan")["items"], what="a running plan")
    page.wait("!/Sent|queued/.test(document.querySelector('.progress-state').innerText)", what="the job's phase")
    page.click("Cancel")
    page.wait("!document.querySelector('.progress-state')")
    wait_for(
        lambda: stage.call("GET", f"jobs/{job['id']}")["state"],
        lambda state: state == "cancelled",
        what="cancelled job",
    )
    assert page.evaluate("location.hash") == "#/plans/new"


def test_the_skip_link_leads_to_the_content(page: Page) -> None:
    page.send("Page.reload")
    page.wait_text("Every target")
    page.press("Tab")
    assert focused(page) == "Skip to content"
    page.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.evaluate("location.hash") in {"", "#/fleet"}


def test_a_stored_plan_is_explained_and_replayed(page: Page, stage: Stage) -> None:
    go(page, f"plans/{stage.ids['chat']}")
    page.click("Explain again")
    page.wait_text("Explanation, solved again")
    page.wait("!document.querySelector('.progress-state')")
    page.click("Replay an hour")
    page.wait_text("has given rates, so the costs of its engine are unknown")
    page.wait("!document.querySelector('.progress-state')")
    go(page, f"plans/{stage.ids['impossible']}")
    page.wait_text("No mix meets the request")
    assert "Replay an hour" not in page.evaluate(f"{MAIN}.innerText")


def test_a_plan_is_compared_applied_and_approved(page: Page, open_page: OpenPage, stage: Stage) -> None:
    """The controller in the service scales an application behind a double of Ray Serve's API."""
    plan = stage.ids["chat"]
    go(page, f"plans/{plan}")
    page.click("Compare")
    page.wait_text("Choose a second plan")
    page.fill("With", "target:chat")
    page.wait_text("now on chat")
    page.wait_text("+1", within=MAIN)

    go(page, f"plans/{plan}")
    page.click("Apply …")
    page.wait_text("What changes")
    page.fill("Mode", "apply")
    page.evaluate(f"{page.label('Require an approval of each change set')}.click()")
    page.click("Point the target at this plan")
    confirm(page, "Point at the plan")
    page.wait_text("The target has this plan")
    page.wait_text("Change set that waits for approval")
    digest = stage.call("GET", "targets/chat/status")["digest"]
    page.wait_text(digest)
    assert stage.application.counts == {"Small": 1, "Medium": 1, "Large": 1}, "nothing before the approval"

    page.allowed_statuses.add(403)
    page.click("Approve this change set")
    confirm(page, "Approve")
    page.wait("Boolean(document.querySelector('main .problem'))", what="the refusal of an approval by who set the plan")
    reported = stage.call("GET", "targets/chat/status")["observed_at"]
    wait_for(
        lambda: stage.call("GET", "targets/chat/status")["observed_at"], lambda at: at != reported, what="next report"
    )
    page.evaluate("new Promise(resolve => setTimeout(resolve, 3000))")  # two rounds of the page
    page.click("Dismiss")
    page.wait("!document.querySelector('main .problem')")
    assert stage.application.counts == {"Small": 1, "Medium": 1, "Large": 1}

    secret = stage.call("POST", "tokens", {"name": "approver", "scopes": ["read", "approve"]})["secret"]
    other = open_page(signed_in=False)
    other.fill("API token", secret)
    other.click("Sign in", tag="form button")
    other.wait_text("awaiting approval")
    go(other, "targets/chat")
    other.click("Approve this change set")
    confirm(other, "Approve")
    wait_for(lambda: stage.application.deployments["Large"].requested == 2, what="request for a second replica")
    stage.application.settle()
    page.wait_text("applied", within=MAIN)
    assert stage.application.counts == {"Small": 1, "Medium": 1, "Large": 2}
    actions = [each for each in stage.call("GET", "audit")["items"] if each["subject"] == "targets/chat"]
    (approval,) = [each for each in actions if each["action"] == "target.approved"]
    assert approval["detail"]["digest"] == digest
    assert approval["actor"].startswith("token:")
    go(page, "fleet")
    page.wait_text("applied")


def test_a_write_on_an_old_version_is_refused_and_shown(page: Page, stage: Stage) -> None:
    page.allowed_statuses.add(412)
    go(page, f"plans/{stage.ids['more']}/apply?target=chat")
    page.wait_text("What changes")
    spec = stage.call("GET", "targets/chat")["spec"]
    stage.call("PUT", "targets/chat", spec | {"max_step": 7}, If_Match="*")
    page.click("Point the target at this plan")
    confirm(page, "Point at the plan")
    page.wait_text("It has changed since you read it; nothing was changed")
    assert stage.call("GET", "targets/chat")["spec"]["plan_id"] == spec["plan_id"]


def test_an_operator_acts_on_the_quarantine(page: Page, stage: Stage) -> None:
    go(page, "health")
    page.click("approve gpu-7")
    confirm(page, "Approve")
    page.wait_text("approve requested")
    stage.evaluate_quarantine()
    page.send("Page.reload")
    page.wait_text("quarantined")
    page.click("Cordon a node …")
    page.fill("Node", "gpu-20")
    confirm(page, "Cordon")
    page.wait_text("cordon requested")
    stage.evaluate_quarantine()
    states = {each["node"]: each["state"] for each in stage.call("GET", "faults/quarantine")["nodes"]}
    assert (states["gpu-7"], states["gpu-20"]) == ("quarantined", "cordoned")
    page.send("Page.reload")
    page.click("release gpu-20")
    confirm(page, "Release")
    page.wait_text("release requested")

    page.allowed_statuses.add(404)
    page.click("Cordon a node …")
    page.fill("Node", "gpu-999")
    confirm(page, "Cordon")
    page.wait_text("There is no node 'gpu-999' in the last evaluation of the fleet")


def test_the_fleet_is_frozen_and_thawed_with_the_keyboard_alone(page: Page, stage: Stage) -> None:
    tab_to(page, "Freeze …")
    page.press("Enter")
    page.wait_text("Every write to every target stops")
    assert focused(page) == "Reason", "the dialog starts at its first field"
    page.type("maintenance of hall 2")
    page.press("Enter")
    page.wait_text("Nothing writes to any target.")
    page.wait_text("maintenance of hall 2")
    assert stage.call("GET", "freeze") == {"frozen": True, "reason": "maintenance of hall 2"}
    tab_to(page, "Unfreeze")
    page.press("Space")
    page.wait_text("Unfreeze the fleet?")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    assert stage.call("GET", "freeze")["frozen"] is True, "Escape changes nothing"
    assert focused(page) == "Unfreeze", "the focus returns to the button"
    page.press("Enter")
    page.wait_text("Unfreeze the fleet?")
    tab_to(page, "Unfreeze")
    page.press("Enter")
    page.wait_text("not frozen")
    assert stage.call("GET", "freeze")["frozen"] is False


def test_a_budget_is_set_and_withdrawn(page: Page, stage: Stage) -> None:
    go(page, "power/trees/hall")
    page.click("Set a budget …")
    page.fill("Domain", "row-1")
    page.fill("Limit, W", "190000")
    confirm(page, "Set the budget")
    page.wait_text("in force")
    assert stage.call("GET", "power/budgets/row-1")["budget"]["limit_w"] == 190_000
    page.click("Withdraw the budget of row-1")
    confirm(page, "Withdraw")
    page.wait_text("No budget is set")


@pytest.mark.parametrize("scopes", [["read"]])
def test_a_reader_sees_everything_and_may_write_nothing(open_page: OpenPage, stage: Stage, scopes: list[str]) -> None:
    secret = stage.call("POST", "tokens", {"name": "viewer", "scopes": scopes})["secret"]
    page = open_page(signed_in=False)
    page.allowed_statuses.add(403)
    page.fill("API token", secret)
    page.click("Sign in", tag="form button")
    page.wait_text("Every target")
    assert page.evaluate("[...document.querySelectorAll('nav a')].map(each => each.innerText)") == [
        "Fleet",
        "Plans",
        "Placements",
        "Power",
        "Health",
    ]
    assert page.evaluate("[...document.querySelectorAll('main button')].every(each => each.disabled)")
    page.wait_text("needs scope operate")
    go(page, "plans/new")
    page.wait_text("needs scope plan")


def test_reading_on_loopback_needs_no_token(open_page: OpenPage, start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(f"sqlite+aiosqlite:///{tmp_path}/fleet.db", "--no-controller", anonymous_read="true")
    page = open_page(signed_in=False, url=server.url)
    page.wait_text("No target yet")
    page.wait_text("Sign in (scope operate)")
    for section in ("Plans", "Placements", "Power", "Health"):
        page.click(section)
        page.wait(f"document.querySelector('main h1')?.innerText === {section!r}")


def test_a_session_that_ends_leads_to_the_sign_in(page: Page, stage: Stage) -> None:
    sessions = [each for each in stage.call("GET", "tokens")["items"] if each["parent"]]
    stage.call("DELETE", f"tokens/{sessions[0]['id']}")
    page.evaluate("location.hash = '#/plans'")
    page.wait_text("API token")
    assert page.evaluate("location.hash") == "#/sign-in?next=%23%2Fplans"
    page.fill("API token", ADMIN_TOKEN)
    page.click("Sign in", tag="form button")
    page.wait_text("Stored plans")


def test_a_caller_with_several_projects_chooses_one(page: Page, stage: Stage) -> None:
    """Everything that a page reads then belongs to the project, also after a reload."""
    picker = "document.querySelector('#account select')"
    page.send("Page.reload")
    page.wait_text("Every target")
    assert page.evaluate(f"{picker} === null"), "with one project there is nothing to choose"
    stage.call("PUT", "projects/team-a", {"quotas": {}}, **{"If-None-Match": "*"})
    page.send("Page.reload")
    page.wait(f"{picker}?.options.length === 3", what="the picker of projects")
    page.wait_text("chat", within=MAIN)
    change = f"{picker}.value = 'team-a'; {picker}.dispatchEvent(new Event('change'))"
    page.evaluate(change)
    page.wait(f"!{MAIN}.innerText.includes('chat')", what="the targets of team-a: none")
    assert page.evaluate(f"document.activeElement === {picker}"), "the focus stays on the picker"
    page.send("Page.reload")
    page.wait(f"{picker}?.value === 'team-a'", what="the choice after a reload")
    page.evaluate(f"{picker}.value = ''; {picker}.dispatchEvent(new Event('change'))")
    page.wait_text("chat", within=MAIN)
    version = stage.call("GET", "projects/team-a")["version"]
    assert version == 1
    stage.call("DELETE", "projects/team-a", **{"If-Match": "*"})
