from enum import StrEnum
from typing import Annotated

import typer


class LogLevel(StrEnum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


LogLevelOption = Annotated[
    LogLevel, typer.Option(envvar="FLEETWRIGHT_LOG_LEVEL", case_sensitive=False, help="Minimum severity of log lines.")
]
