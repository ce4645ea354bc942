"""The OpenAPI document is complete: it lists each code, status and header that its gateway uses, and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.edges.forwarding import ALWAYS, Forwarding
from mqproto.simulator.edges.gateway.admission import Rate
from mqproto.simulator.edges.gateway.front import KEY_LENGTH, KEY_LENGTH_MOST, ProducerPolicy, refused
from mqproto.simulator.edges.gateway.openapi import openapi
from mqproto.simulator.edges.gateway.refusals import MEANINGS, Code, Refusal
from mqproto.simulator.edges.gateway.schemas import OF_HEADERS
from mqproto.simulator.edges.gateway.tokens import Tokens
from mqproto.simulator.edges.headers import ACKNOWLEDGE, ADMIN_QUEUE, BODY_TYPE, HEADERS, options_in

LONG = st.integers(KEY_LENGTH - 2, KEY_LENGTH + 2).map("x".__mul__)


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


EVERYTHING = ProducerPolicy(
    key_header="X-Id",
    require_key=True,
    tokens=Tokens({}, str),
    rate=Rate(1.0),
    forwarding=Forwarding(["X-Tenant"]),
    https=True,
    certificates=True,
)


def test_every_code_occurs_under_its_status() -> None:
    document = openapi(EVERYTHING)
    refusal = document["components"]["schemas"]["Problem"]["properties"]
    assert refusal["code"]["enum"] == list(Code)
    assert refusal["type"]["enum"] == [f"urn:problem-type:mqproto:{code}" for code in Code]
    post = document["paths"]["/queues/{NAME}/messages"]["post"]["responses"]
    get = document["paths"]["/queues/{NAME}/messages/{ID}"]["get"]["responses"]
    for code, meaning in MEANINGS.items():
        if code in (
            Code.NOT_FOUND,
            Code.METHOD_NOT_ALLOWED,
        ):  # Of paths and methods that are not in the document.
            continue
        answer = (get if code is Code.UNKNOWN_MESSAGE else post)[str(meaning.status)]
        assert f"{code}: {meaning.text}" in answer["description"]
        [(media_type, content)] = answer["content"].items()
        assert media_type == "application/problem+json"
        assert code in content["schema"]["properties"]["code"]["enum"]
        assert ("Retry-After" in answer.get("headers", {})) == (meaning.retry_after_s is not None)


@pytest.mark.parametrize(
    "policy",
    [
        EVERYTHING,
        ProducerPolicy(key_fields=("id",), tokens=Tokens({}, str)),
        ProducerPolicy(certificates=True),
        ProducerPolicy(),
    ],
    ids=["all that may be asked for", "tokens", "certificates", "nothing"],
)
def test_the_document_is_valid(policy: ProducerPolicy) -> None:
    """OpenAPI 3.1, checked by a third-party validator."""
    OpenAPIV31SpecValidator(openapi(policy)).validate()


@pytest.mark.parametrize("require_key", [False, True])
def test_the_id_is_required_where_it_is_asked_for(require_key: bool) -> None:
    post = openapi(ProducerPolicy(require_key=require_key))["paths"]["/queues/{NAME}/messages"]["post"]
    [key] = [each for each in post["parameters"] if each["name"] == "Idempotency-Key"]
    assert key["required"] is require_key


def codes_in(document: dict[str, Any]) -> set[str]:
    return {
        code
        for operation in operations(document)
        for answer in operation["responses"].values()
        for content in answer["content"].values()
        for code in content["schema"].get("properties", {}).get("code", {}).get("enum", ())
    }


def test_a_document_says_nothing_that_its_gateway_does_not_ask_for() -> None:
    asks = {
        Code.UNAUTHORISED: ProducerPolicy(tokens=Tokens({}, str)),
        Code.KEY_MISSING: ProducerPolicy(require_key=True),
        Code.TOO_MANY: ProducerPolicy(rate=Rate(1.0)),
    }
    for code, policy in asks.items():
        assert codes_in(openapi(policy)) == codes_in(openapi(ProducerPolicy())) | {code}
    assert codes_in(openapi(EVERYTHING)) == {*Code} - {Code.NOT_FOUND, Code.METHOD_NOT_ALLOWED}


def test_who_may_ask_is_a_scheme_of_its_own() -> None:
    token, certificate = {"type": "http", "scheme": "bearer"}, {"type": "mutualTLS"}
    assert "securitySchemes" not in openapi(ProducerPolicy())["components"]
    document = openapi(ProducerPolicy(certificates=True))
    assert document["components"]["securitySchemes"] == {"certificate": certificate}
    assert document["security"] == [{"certificate": []}]
    document = openapi(EVERYTHING)
    assert document["components"]["securitySchemes"] == {"certificate": certificate, "token": token}
    post = document["paths"]["/queues/{NAME}/messages"]["post"]
    assert post["security"] == [{"token": [], "certificate": []}]
    assert "over HTTPS alone" in document["servers"][0]["description"]
    assert "over HTTP alone" in openapi(ProducerPolicy())["servers"][0]["description"]


@pytest.mark.parametrize("code", Code)
def test_a_refusal_is_what_the_document_says(code: Code) -> None:
    schema = openapi(ProducerPolicy())["components"]["schemas"]["Problem"]
    body = json.loads(refused(Refusal(code, "as it is")).body)
    assert list(body) == schema["required"] == list(schema["properties"])
    assert body["type"] in schema["properties"]["type"]["enum"]


def test_every_status_is_that_of_a_code() -> None:
    known = {"200"} | {str(meaning.status) for meaning in MEANINGS.values()}
    for operation in operations(openapi(ProducerPolicy())):
        assert set(operation["responses"]) <= known


def test_every_header_is_there_and_the_one_that_the_policy_names() -> None:
    policy = ProducerPolicy(key_header="X-Id", forwarding=Forwarding(["X-Tenant"]))
    post = openapi(policy)["paths"]["/queues/{NAME}/messages"]["post"]
    assert [each["name"] for each in post["parameters"]] == ["NAME", "X-Id", *HEADERS, *ALWAYS, "x-tenant"]
    assert "The label, in UTF-8, percent-encoded." in {each["description"] for each in post["parameters"]}
    post = openapi(ProducerPolicy(key_fields=("id",)))["paths"]["/queues/{NAME}/messages"]["post"]
    assert [each["name"] for each in post["parameters"]] == ["NAME", *HEADERS, *ALWAYS]
    assert "the field id" in post["description"]


@given(
    text=st.text(st.characters(codec="ascii")) | st.text() | LONG | LONG.map('"{}"'.format), data=st.data()
)
def test_the_pattern_of_ids_is_what_the_gateway_takes(text: str, data: st.DataObject) -> None:
    policy = ProducerPolicy(
        key_length=data.draw(st.sampled_from([KEY_LENGTH, KEY_LENGTH + 1, 1, KEY_LENGTH_MOST]))
    )
    try:
        policy.key_of(text)
        is_taken = True
    except UsageError:
        is_taken = False
    document = openapi(policy)
    post = document["paths"]["/queues/{NAME}/messages"]["post"]
    pattern = next(each["schema"]["pattern"] for each in post["parameters"] if "pattern" in each["schema"])
    assert (re.search(pattern.replace("$", r"\Z"), text) is not None) is is_taken
    get = document["paths"]["/queues/{NAME}/messages/{ID}"]["get"]
    pattern = get["parameters"][1]["schema"]["pattern"]
    assert pattern == document["components"]["schemas"]["Trail"]["properties"]["id"]["pattern"]
    assert (re.search(pattern.replace("$", r"\Z"), text) is not None) is (is_taken and text != "")


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in HEADERS if name != BODY_TYPE])
@given(data=st.data())
def test_the_schema_of_a_header_is_what_the_gateway_takes(name: str, data: st.DataObject) -> None:
    pattern = str(OF_HEADERS[name]["pattern"])
    there = st.from_regex(pattern.replace(")?$", ")$"), fullmatch=True)
    anything = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))
    text = data.draw(there | anything | st.sampled_from(OF_HEADERS[name]["examples"])).strip(" ")
    beside = {ADMIN_QUEUE: "notes"} if name == ACKNOWLEDGE else {}
    said = {**beside, name: text}
    try:
        Draft(body=b"", **options_in(lambda asked: said.get(asked, ""))).check(names=False)
        is_taken = True
    except UsageError:
        is_taken = False
    assert (re.search(pattern, text) is not None) is is_taken


def test_what_is_referred_to_is_there() -> None:
    document = openapi(ProducerPolicy())

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if "$ref" in value else []
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    found = set(references(document))
    assert found == {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "headers")
        for name in document["components"][kind]
    }
    assert len({each["operationId"] for each in operations(document)}) == len(list(operations(document)))
