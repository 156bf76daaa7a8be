"""The words for log levels and formats, for those who must not load the logging itself."""

from typing import Literal

LogStream = Literal["json", "console", "auto"]
LogLevel = Literal["debug", "info", "warning", "error"]
