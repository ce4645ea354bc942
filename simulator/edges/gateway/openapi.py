"""The gateway in OpenAPI 3.1, as it is served: made of the tables that it works by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from simulator.client.envelope import KEY_LIMIT
from simulator.edges.gateway.callbacks import CALLBACK, CALLBACK_TEXT
from simulator.edges.gateway.front import LIMIT_BYTES, Policy
from simulator.edges.gateway.refusals import MEANINGS, PROBLEM_JSON, Code
from simulator.edges.gateway.trail import State
from simulator.edges.headers import BODY_TYPE, HEADERS
from simulator.edges.trigger.hooks import URL_LIMIT

KEY: Final = rf'^[ -~]{{1,{KEY_LIMIT}}}$|^"[ -~]{{1,{KEY_LIMIT}}}"$'
"""A producer's id; in quotation marks or not, it is the same."""
OF_ALL = (Code.MALFORMED, Code.HEAD_TOO_LARGE, Code.FAILED, Code.TOO_SLOW, Code.OVERLOADED)
"""What any request may be told."""
OF_MESSAGES = tuple(
    code for code in Code if code not in (Code.NOT_FOUND, Code.UNKNOWN_MESSAGE, Code.METHOD_NOT_ALLOWED)
)
OF_TRAILS = (
    *OF_ALL,
    Code.INVALID,
    Code.UNAUTHORISED,
    Code.FORBIDDEN,
    Code.UNKNOWN_QUEUE,
    Code.UNKNOWN_MESSAGE,
    Code.HISTORY_UNAVAILABLE,
)


def openapi(policy: Policy) -> dict[str, Any]:
    """The document."""
    post: dict[str, Any] = {
        "operationId": "handIn",
        "summary": "Hand in a message; 200 once it is on disk.",
        "description": (
            "After 200 the message is delivered whatever happens. A refusal without Retry-After is for good: do not "
            "retry. After one with Retry-After, or without any answer, the message may have been accepted, or not: "
            f"retry with the same id in {policy.key_place}, and it is accepted once. Without an id it may come twice. "
            "Headers that begin with ce-, the attributes of a CloudEvent, are given to the consumer."
        ),
        "parameters": [
            _queue(),
            *([] if policy.key_field else [_key(policy)]),
            *(_parameter(name, "header", text.capitalize() + ".") for name, text in HEADERS.items()),
            *(_parameter(name, "header", "Given to the consumer.") for name in policy.forwarding.names),
            *_callback(policy),
        ],
        "requestBody": {
            "description": (
                f"At most {LIMIT_BYTES:,} bytes of any type, delivered as they are; with {BODY_TYPE}, a text that says "
                "the body."
            ),
            "content": {"*/*": {}},
        },
        "responses": {"200": _content("On disk.", "Accepted"), **_refusals(OF_MESSAGES)},
    }
    get: dict[str, Any] = {
        "operationId": "getTrail",
        "summary": "What has become of a message.",
        "parameters": [
            _queue(),
            _id(),
        ],
        "responses": {"200": _content("Who has it.", "Trail"), **_refusals(OF_TRAILS)},
    }
    if policy.tokens is not None:
        post["security"] = get["security"] = [{"token": []}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "mqproto gateway", "version": "1"},
        "paths": {
            "/queues/{NAME}/messages": {"post": post},
            "/queues/{NAME}/messages/{ID}": {"get": get},
            "/openapi.json": {"get": _get("getDocument", "This document.", OF_ALL)},
            "/health": {
                "get": _get(
                    "getHealth", "Whether messages can be accepted.", (*OF_ALL, Code.NODE_UNAVAILABLE)
                )
            },
        },
        "components": {
            "schemas": {
                "Accepted": _object(
                    id={
                        "type": "string",
                        "description": "The message's identifier; a duplicate has the first's.",
                    },
                    duplicate={"type": "boolean"},
                ),
                "Trail": _object(
                    optional={
                        "message": {"type": "string", "description": "Its identifier, once it is accepted."},
                        "class": {
                            "type": "string",
                            "description": "That of the acknowledgment with which its way ended.",
                        },
                        "ended": {"type": "string", "format": "date-time"},
                        "attempts": {"type": "integer", "description": "How often its consumer was called."},
                        "reason": {"type": "string", "description": "What its consumer said."},
                    },
                    id={"type": "string", "description": "The producer's."},
                    queue={"type": "string"},
                    state={"type": "string", "enum": list(State)},
                ),
                "Refusal": _object(
                    type={
                        "type": "string",
                        "format": "uri",
                        "enum": [code.problem for code in Code],
                        "description": "Names the problem; nothing is to be had at it.",
                    },
                    title={"type": "string", "description": "What the code means."},
                    status={"type": "integer", "description": "That of the answer."},
                    detail={"type": "string", "description": "What is wrong here, and what to do."},
                    code={"type": "string", "enum": list(Code), "description": "The last part of the type."},
                    message={"type": "string", "description": "The same as the detail."},
                ),
            },
            **({"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}} if policy.tokens else {}),
        },
    }


def _queue() -> dict[str, Any]:
    return _parameter(
        "NAME", "path", r"A queue, such as orders or destination\private$\orders.", required=True
    )


def _id() -> dict[str, Any]:
    parameter = _parameter("ID", "path", "The message's own id, as its producer gave it.", required=True)
    parameter["schema"]["pattern"] = KEY
    return parameter


def _key(policy: Policy) -> dict[str, Any]:
    """The header with the producer's id."""
    text = f"The message's own id: printable ASCII, at most {KEY_LIMIT} characters."
    parameter = _parameter(policy.key_header, "header", text, required=policy.require_key)
    parameter["schema"]["pattern"] = KEY if policy.require_key else f"{KEY}|^$"
    return parameter


def _callback(policy: Policy) -> list[dict[str, Any]]:
    """The header with the URL that is told how the message ends."""
    if not policy.callbacks.hosts.hosts:
        return []
    parameter = _parameter(CALLBACK, "header", f"{CALLBACK_TEXT.capitalize()}.")
    parameter["schema"] |= {"format": "uri", "maxLength": URL_LIMIT}
    return [parameter]


def _parameter(name: str, place: str, text: str, *, required: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": required,
        "description": text,
        "schema": {"type": "string"},
    }


def _get(operation: str, summary: str, codes: Iterable[Code]) -> dict[str, Any]:
    return {
        "operationId": operation,
        "summary": summary,
        "responses": {"200": {"description": "OK"}, **_refusals(codes)},
    }


def _refusals(codes: Iterable[Code]) -> dict[str, Any]:
    """The answers by status, each with its codes and what they mean."""
    by_status: dict[int, list[Code]] = {}
    for code in codes:
        by_status.setdefault(MEANINGS[code].status, []).append(code)
    answers: dict[str, Any] = {}
    for status, found in sorted(by_status.items()):
        text = "; ".join(f"{code}: {MEANINGS[code].text}" for code in found)
        answers[str(status)] = answer = _content(text, "Refusal", PROBLEM_JSON)
        if any(MEANINGS[code].retry_after_s is not None for code in found):
            answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return answers


def _content(text: str, schema: str, media_type: str = "application/json") -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": text, "content": {media_type: {"schema": reference}}}


def _object(
    *, optional: dict[str, dict[str, Any]] | None = None, **properties: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": {**properties, **(optional or {})},
    }
