"""The OpenAPI 3.1 description that the gateway serves.

It is made from the gateway's own tables and its policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from mqproto.simulator.client.envelope import HEADERS_LIMIT, HEADERS_LIMIT_CHARS
from mqproto.simulator.edges.gateway.front import LIMIT_BYTES, ProducerPolicy
from mqproto.simulator.edges.gateway.refusals import MEANINGS, PROBLEM_JSON, Code
from mqproto.simulator.edges.gateway.schemas import (
    OF_HEADERS,
    Schema,
    key,
    of_answers,
    of_forwarded,
    of_problem,
)
from mqproto.simulator.edges.headers import BODY_TYPE, HEADERS
from mqproto.simulator.edges.history.tables import KEEP_S
from mqproto.simulator.edges.trigger.telling import CALLBACK, CALLBACK_TEXT, URL_LIMIT

DAY_S: Final = 24 * 3_600.0
OF_ALL: Final = (Code.MALFORMED, Code.HEAD_TOO_LARGE, Code.FAILED, Code.TOO_SLOW, Code.OVERLOADED)
"""The codes that can occur in the answer to any request."""
OF_MESSAGES: Final = tuple(
    code for code in Code if code not in (Code.NOT_FOUND, Code.UNKNOWN_MESSAGE, Code.METHOD_NOT_ALLOWED)
)
OF_TRAILS: Final = (
    *OF_ALL,
    Code.INVALID,
    Code.BAD_HEADER,
    Code.UNAUTHORISED,
    Code.FORBIDDEN,
    Code.UNKNOWN_QUEUE,
    Code.UNKNOWN_MESSAGE,
    Code.HISTORY_UNAVAILABLE,
)


def openapi(policy: ProducerPolicy, keep_days: float = KEEP_S / DAY_S) -> dict[str, Any]:
    """Return the OpenAPI document.

    Args:
        keep_days: the number of days for which ids are remembered.
    """
    never = _never(policy)
    certificate: dict[str, list[str]] = {"certificate": []} if policy.certificates else {}
    post, get = _of_messages(policy, keep_days, never)
    if policy.tokens is not None:
        post["security"] = get["security"] = [{"token": [], **certificate}]
    schemes = {
        **({"token": {"type": "http", "scheme": "bearer"}} if policy.tokens is not None else {}),
        **({"certificate": {"type": "mutualTLS"}} if policy.certificates else {}),
    }
    itself = _answer("This document.", {"type": "object", "required": ["openapi", "info", "paths"]})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mqproto gateway",
            "version": "1",
            "description": (
                f"What is not 200 is {PROBLEM_JSON}. Any other path is answered 404 ({Code.NOT_FOUND}), any other "
                f"method 405 ({Code.METHOD_NOT_ALLOWED}) with Allow; HEAD is as GET, without a body."
            ),
        },
        "servers": [
            {
                "url": "/",
                "description": f"Where this document is, over {'HTTPS' if policy.https else 'HTTP'} alone.",
            }
        ],
        **({"security": [certificate]} if certificate else {}),
        "paths": {
            "/queues/{NAME}/messages": {"post": post},
            "/queues/{NAME}/messages/{ID}": {"get": get},
            "/openapi.json": {"get": _get("getDocument", "This document.", itself, _refusals(OF_ALL, never))},
            "/health": {
                "get": _get(
                    "getHealth",
                    "Whether messages can be accepted.",
                    _content("They can.", "Health"),
                    _refusals((*OF_ALL, Code.NODE_UNAVAILABLE), never),
                )
            },
        },
        "components": {
            "schemas": of_answers(policy.key_length),
            "headers": {
                "Retry-After": {
                    "description": "Seconds after which it may be tried again.",
                    "schema": {"type": "integer", "minimum": 1},
                },
            },
            **({"securitySchemes": schemes} if schemes else {}),
        },
    }


def _of_messages(
    policy: ProducerPolicy, keep_days: float, never: frozenset[Code]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Describe how to hand in a message, and how to ask what happened to it."""
    post: dict[str, Any] = {
        "operationId": "handIn",
        "summary": "Send a message; 200 once it is on disk.",
        "description": (
            "After 200 the message is delivered whatever happens. A refusal without Retry-After is for good: do not "
            "retry. After one with Retry-After, or without any answer, the message may have been accepted, or not: "
            f"retry with the same id in {policy.key_place}, and it is accepted once, for {keep_days:g} days. Without "
            "an id it may come twice. "
            "Headers that begin with ce-, the attributes of a CloudEvent, are given to the consumer; at most "
            f"{HEADERS_LIMIT} headers of {HEADERS_LIMIT_CHARS:,} characters in all are."
        ),
        "parameters": [
            _queue(),
            *([] if policy.key_fields else [_key(policy)]),
            *(_header(name, f"{said}.", OF_HEADERS[name]) for name, said in HEADERS.items()),
            *(
                _header(name, "Given to the consumer.", of_forwarded(name))
                for name in policy.forwarding.names
            ),
            *_callback(policy),
        ],
        "requestBody": {
            "description": (
                f"At most {LIMIT_BYTES:,} bytes of any type, delivered as they are; with {BODY_TYPE}, a text that says "
                "the body."
            ),
            "content": {"*/*": {}},
        },
        "responses": {
            "200": {
                **_content("On disk.", "Accepted"),
                "links": {} if len(policy.key_fields) > 1 else {"trail": _link(policy)},
            },
            **_refusals(OF_MESSAGES, never),
        },
    }
    get: dict[str, Any] = {
        "operationId": "getTrail",
        "summary": "What has become of a message.",
        "parameters": [_queue(), _id(policy)],
        "responses": {"200": _content("Who has it.", "Trail"), **_refusals(OF_TRAILS, never)},
    }
    return post, get


def _never(policy: ProducerPolicy) -> frozenset[Code]:
    """Return the codes that cannot occur under this policy."""
    asked = {
        Code.UNAUTHORISED: policy.tokens is not None,
        Code.KEY_MISSING: policy.require_key,
        Code.TOO_MANY: policy.rate is not None,
    }
    return frozenset(code for code, is_asked in asked.items() if not is_asked)


def _queue() -> dict[str, Any]:
    said = r"A queue, such as orders or destination\private$\orders."
    return _parameter("NAME", "path", said, {"type": "string", "minLength": 1}, required=True)


def _id(policy: ProducerPolicy) -> dict[str, Any]:
    said = "The message's own id, as its producer gave it."
    schema = {"type": "string", "pattern": key(policy.key_length)}
    return _parameter("ID", "path", said, schema, required=True)


def _key(policy: ProducerPolicy) -> dict[str, Any]:
    """Describe the header with the producer's id."""
    said = f"The message's own id: printable ASCII, at most {policy.key_length} characters."
    if policy.tokens is not None:
        said += " Each producer has its own ids."
    pattern = key(policy.key_length) + ("" if policy.require_key else "|^$")
    schema = {"type": "string", "pattern": pattern, "examples": ["order-17"]}
    return _header(policy.key_header, said, schema, required=policy.require_key)


def _callback(policy: ProducerPolicy) -> list[dict[str, Any]]:
    """Describe the header with the URL that gets a report about the message's end."""
    if not policy.callbacks.hosts:
        return []
    schema = {"type": "string", "format": "uri", "maxLength": URL_LIMIT}
    return [_header(CALLBACK, f"{CALLBACK_TEXT}.", schema)]


def _link(policy: ProducerPolicy) -> dict[str, Any]:
    """Describe how to ask for the trail of a message that was handed in, by the message's id."""
    place = f"body#/{policy.key_fields[0]}" if policy.key_fields else f"header.{policy.key_header}"
    return {
        "operationId": "getTrail",
        "parameters": {"NAME": "$request.path.NAME", "ID": f"$request.{place}"},
        "description": "What has become of it; only of a message with an id.",
    }


def _header(name: str, said: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return _parameter(name, "header", said[0].upper() + said[1:], schema, required=required)


def _parameter(name: str, place: str, said: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "description": said, "schema": schema}


def _get(operation: str, summary: str, answer: dict[str, Any], refusals: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": operation, "summary": summary, "responses": {"200": answer, **refusals}}


def _refusals(codes: Iterable[Code], never: frozenset[Code]) -> dict[str, Any]:
    """Return descriptions of the answers, keyed by status, each with its codes and their meanings."""
    by_status: dict[int, list[Code]] = {}
    for code in codes:
        if code not in never:
            by_status.setdefault(MEANINGS[code].status, []).append(code)
    answers: dict[str, Any] = {}
    for status, found in sorted(by_status.items()):
        said = "; ".join(f"{code}: {MEANINGS[code].text}" for code in found)
        answers[str(status)] = answer = _answer(said, of_problem(status, found), PROBLEM_JSON)
        if any(MEANINGS[code].retry_after_s is not None for code in found):
            answer["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
        if Code.UNAUTHORISED in found:
            answer["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}}
    return answers


def _content(said: str, schema: str) -> dict[str, Any]:
    return _answer(said, {"$ref": f"#/components/schemas/{schema}"})


def _answer(said: str, schema: Schema, media_type: str = "application/json") -> dict[str, Any]:
    return {"description": said, "content": {media_type: {"schema": schema}}}
