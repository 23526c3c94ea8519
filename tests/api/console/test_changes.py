"""Pages follow the events of the service."""

import time

from tests.api.console.conftest import Stage
from tests.testbed.browser import Page


def test_a_change_by_another_caller_shows_soon(page: Page, stage: Stage) -> None:
    """Sooner than the next poll, which is 15 s away while the page follows the service's changes."""
    page.wait("performance.getEntriesByType('resource').length && true", what="the page's requests")
    took_s = 0.0
    for frozen, text in ((True, "Nothing writes to any target"), (False, "The controller may write")) * 2:
        begun_s = time.monotonic()
        stage.call("PUT", "freeze", {"frozen": frozen, "reason": "elsewhere" if frozen else None}, If_Match="*")
        page.wait_text(text)
        took_s = time.monotonic() - begun_s
    assert took_s < 10.0
    assert sum(url.endswith("/v1/events?follow=true") for url in page.requested) == 1
