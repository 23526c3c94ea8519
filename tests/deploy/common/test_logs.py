"""Every process writes its own records and those of libraries in one format."""

import io
import json
import logging
import sys

import pytest
import structlog

from deploy.common.logs import configure_logs
from tests.testbed.logs import logging_put_back


def own_logger() -> structlog.typing.FilteringBoundLogger:
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger("deploy.test")
    return logger


def test_own_records_and_warnings_of_libraries_are_json_lines() -> None:
    stream = io.StringIO()
    with logging_put_back():
        configure_logs(level="INFO", stream=stream)
        own_logger().debug("hidden")
        own_logger().info("reconciled", target="chat")
        logging.getLogger("library").info("hidden")
        logging.getLogger("library").warning("slow %s", "disk")
    own, library = map(json.loads, stream.getvalue().splitlines())
    assert (own["event"], own["level"], own["logger"], own["target"]) == ("reconciled", "info", "deploy.test", "chat")
    assert (library["event"], library["level"], library["logger"]) == ("slow disk", "warning", "library")


def test_libraries_may_have_the_level_of_the_product() -> None:
    stream = io.StringIO()
    with logging_put_back():
        configure_logs(level="INFO", libraries="INFO", stream=stream)
        logging.getLogger("library").info("started")
        logging.getLogger("httpx").info("hidden")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["started"]


def test_records_go_to_the_stderr_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that replaced stderr at the time of the set-up may have closed it since."""
    first, second = io.StringIO(), io.StringIO()
    with logging_put_back():
        monkeypatch.setattr(sys, "stderr", first)
        configure_logs(level="INFO")
        monkeypatch.setattr(sys, "stderr", second)
        first.close()
        own_logger().info("started")
    assert json.loads(second.getvalue())["event"] == "started"


def test_console_lines_are_for_people() -> None:
    stream = io.StringIO()
    with logging_put_back():
        configure_logs(level="INFO", console=True, stream=stream)
        own_logger().info("reconciled", target="chat")
    assert "reconciled" in stream.getvalue()
    assert "target=chat" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
