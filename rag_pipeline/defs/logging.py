"""What a run prints to the console: a line an event, the time, the asset, the message."""

from __future__ import annotations

import logging
import sys

import dagster as dg


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        meta = getattr(record, "dagster_meta", {}) or {}
        step = str(meta.get("step_key") or "run")
        message = str(meta.get("orig_message") or record.getMessage())
        text = f"{self.formatTime(record, '%H:%M:%S')}  {step:<22} {message}"
        if record.levelno >= logging.WARNING:
            text = f"{text}  [{record.levelname.lower()}]"
        return text


@dg.logger(
    config_schema={"log_level": dg.Field(str, is_required=False, default_value="INFO")},
    description="Plain lines on standard error.",
)
def plain_console_logger(context: dg.InitLoggerContext) -> logging.Logger:
    """Return a logger that writes plain lines to standard error."""
    level = context.logger_config["log_level"]
    logger = logging.Logger("rag_pipeline", level=level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    logger.addHandler(handler)
    return logger
