"""Every error as RFC 9457 problem details, by one table from code to status and title.

A body holds the sentence for people, the stable `code` and the error's typed fields; never a
traceback. What nobody foresaw becomes `internal` and stands in the log with its traceback.

Source: RFC 9457 section 3; design section 12.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from supervisor.core.errors import InternalError, RequestError, SupervisorError
from supervisor.telemetry.masking import mask_text, printable

MEDIA_TYPE: Final = "application/problem+json"

PROBLEMS: Final[Mapping[str, tuple[HTTPStatus, str]]] = MappingProxyType(
    {
        "error": (HTTPStatus.INTERNAL_SERVER_ERROR, "The request failed"),
        "request_invalid": (HTTPStatus.UNPROCESSABLE_ENTITY, "The request is not valid"),
        "refused_id": (HTTPStatus.UNPROCESSABLE_ENTITY, "The request's id cannot be used"),
        "not_found": (HTTPStatus.NOT_FOUND, "There is nothing at this path"),
        "method_not_allowed": (HTTPStatus.METHOD_NOT_ALLOWED, "The path does not take this method"),
        "unknown_server": (HTTPStatus.NOT_FOUND, "No such server"),
        "unknown_instance": (HTTPStatus.NOT_FOUND, "No such instance"),
        "unknown_session": (HTTPStatus.NOT_FOUND, "No such session"),
        "unknown_tool": (HTTPStatus.NOT_FOUND, "No such tool"),
        "unknown_prompt": (HTTPStatus.NOT_FOUND, "No such prompt"),
        "unknown_resource": (HTTPStatus.NOT_FOUND, "No such resource"),
        "arguments_invalid": (HTTPStatus.UNPROCESSABLE_ENTITY, "The arguments do not fit the tool"),
        "result_invalid": (HTTPStatus.BAD_GATEWAY, "The result does not fit the tool's schema"),
        "schema_unusable": (HTTPStatus.BAD_GATEWAY, "A schema of the tool cannot be used"),
        "server_paused": (HTTPStatus.SERVICE_UNAVAILABLE, "The server failed too often in a row"),
        "call_failed": (HTTPStatus.BAD_GATEWAY, "The call failed"),
        "server_gone": (HTTPStatus.BAD_GATEWAY, "The server ended before it answered"),
        "call_timed_out": (HTTPStatus.GATEWAY_TIMEOUT, "The server did not answer in time"),
        "call_queued_too_long": (
            HTTPStatus.GATEWAY_TIMEOUT,
            "The call's turn did not come in time",
        ),
        "server_not_reading": (HTTPStatus.GATEWAY_TIMEOUT, "The server does not read its input"),
        "answer_too_long": (HTTPStatus.BAD_GATEWAY, "The server's answer is too long"),
        "request_too_long": (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too long"),
        "answer_not_utf8": (HTTPStatus.BAD_GATEWAY, "The server's answer is not UTF-8"),
        "server_answered_error": (HTTPStatus.BAD_GATEWAY, "The server answered with an error"),
        "bad_answer": (HTTPStatus.BAD_GATEWAY, "The server's answer is not allowed"),
        "channel_closed": (HTTPStatus.CONFLICT, "The connection has been closed"),
        "protocol_version_unknown": (HTTPStatus.BAD_GATEWAY, "The server speaks no known revision"),
        "not_quarantined": (HTTPStatus.CONFLICT, "The instance is not quarantined"),
        "cleanup_unconfirmed": (HTTPStatus.CONFLICT, "An earlier cleanup is unconfirmed"),
        "server_disabled": (HTTPStatus.CONFLICT, "The server is disabled"),
        "server_record_invalid": (HTTPStatus.CONFLICT, "The server's record cannot be used"),
        "config_invalid": (HTTPStatus.CONFLICT, "The configuration is not valid"),
        "too_many_instances": (HTTPStatus.SERVICE_UNAVAILABLE, "Every instance slot is taken"),
        "shutting_down": (HTTPStatus.SERVICE_UNAVAILABLE, "The daemon is shutting down"),
        "daemon_unreachable": (HTTPStatus.SERVICE_UNAVAILABLE, "The daemon does not answer"),
        "server_fault": (HTTPStatus.BAD_GATEWAY, "The server failed"),
        "server_backing_off": (HTTPStatus.SERVICE_UNAVAILABLE, "The server cannot stay up"),
        "launch_failed": (HTTPStatus.BAD_GATEWAY, "The server could not be started"),
        "kernel_refused": (HTTPStatus.INTERNAL_SERVER_ERROR, "The operating system refused"),
        "internal": (HTTPStatus.INTERNAL_SERVER_ERROR, "A bug in the daemon"),
    }
)

_RESERVED: Final = frozenset({"type", "title", "status", "detail", "code"})


def add_problem_handlers(app: FastAPI) -> None:
    """Let every error that a route raises be answered as problem details."""
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
        SupervisorError: _on_supervisor_error,
        RequestValidationError: _on_validation_error,
        HTTPException: _on_http_error,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def problem_response(error: SupervisorError) -> JSONResponse:
    """The answer to a request that ended with `error`."""
    fields = {
        name: value
        for name, value in vars(error).items()
        if name not in _RESERVED and not name.startswith("_")
    }
    return _problem(_listed_code(error), str(error), fields)


def internal_problem() -> JSONResponse:
    """The answer when something happened that cannot happen; the log has the rest."""
    sentence = "The daemon met a bug of its own; its log has the traceback."
    return problem_response(InternalError(sentence))


async def _on_supervisor_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SupervisorError)  # noqa: S101 - registered for that class only
    return problem_response(error)


async def _on_validation_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    # the values themselves are left out: a caller may have put a secret into the wrong field
    problems = [
        {"field": ".".join(str(part) for part in found["loc"]), "message": str(found["msg"])}
        for found in error.errors()
    ]
    sentence = "; ".join(f"{problem['field']}: {problem['message']}" for problem in problems)
    return _problem(RequestError.code, f"{sentence}.", {"errors": problems})


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    where = f"{request.method} {request.url.path}"
    headers = dict(error.headers or {})
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            sentence = f"{where}: nothing is there; /openapi.json lists the paths."
            return _problem("not_found", sentence, {}, headers)
        case HTTPStatus.METHOD_NOT_ALLOWED:
            allowed = headers.get("Allow") or headers.get("allow") or "another method"
            return _problem("method_not_allowed", f"{where}: it takes {allowed}.", {}, headers)
        case _:  # the framework's own, such as 400 for a body that is no JSON
            return _problem(RequestError.code, f"{where}: {error.detail}.", {}, headers)


def _listed_code(error: SupervisorError) -> str:
    """The error's code, or that of its nearest ancestor which the table lists."""
    codes = (getattr(kind, "code", "") for kind in type(error).__mro__)
    return next(code for code in codes if code in PROBLEMS)


def _problem(
    code: str,
    sentence: str,
    fields: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    status, title = PROBLEMS[code]
    body: dict[str, object] = {
        "type": f"urn:mcp-supervisord:problem:{code}",
        "title": title,
        "status": status.value,
        "detail": mask_text(sentence),
        "code": code,
    }
    body |= {name: printable(value) for name, value in fields.items()}
    return JSONResponse(body, status.value, headers=dict(headers or {}), media_type=MEDIA_TYPE)
