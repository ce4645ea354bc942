"""The OpenAPI document says what there is: each code, each status, each header."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator

from mqproto.base.errors import UsageError
from simulator.client.envelope import KEY_LIMIT
from simulator.edges.forwarding import ALWAYS, Forwarding
from simulator.edges.gateway.admission import Tokens
from simulator.edges.gateway.front import Policy, _key, refused
from simulator.edges.gateway.openapi import KEY, openapi
from simulator.edges.gateway.refusals import MEANINGS, Code, Refusal
from simulator.edges.headers import HEADERS
from tests.conformance import ROOT

LONG = st.integers(KEY_LIMIT - 2, KEY_LIMIT + 2).map("x".__mul__)


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def test_every_code_occurs_under_its_status() -> None:
    document = openapi(Policy())
    refusal = document["components"]["schemas"]["Refusal"]["properties"]
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
        assert list(answer["content"]) == ["application/problem+json"]
        assert ("Retry-After" in answer.get("headers", {})) == (meaning.retry_after_s is not None)


@pytest.mark.parametrize(
    "policy",
    [
        Policy(require_key=True, forwarding=Forwarding(["X-Tenant"])),
        Policy(key_field="id", tokens=Tokens({}, str)),
    ],
    ids=["the most headers", "tokens"],
)
def test_the_document_is_valid(policy: Policy) -> None:
    """OpenAPI 3.1, by a validator that is not ours."""
    OpenAPIV31SpecValidator(openapi(policy)).validate()


@pytest.mark.parametrize("require_key", [False, True])
def test_the_id_is_required_where_it_is_asked_for(require_key: bool) -> None:
    post = openapi(Policy(require_key=require_key))["paths"]["/queues/{NAME}/messages"]["post"]
    [key] = [each for each in post["parameters"] if each["name"] == "Idempotency-Key"]
    assert key["required"] is require_key


@pytest.mark.parametrize("code", Code)
def test_a_refusal_is_what_the_document_says(code: Code) -> None:
    schema = openapi(Policy())["components"]["schemas"]["Refusal"]
    body = json.loads(refused(Refusal(code, "as it is")).body)
    assert list(body) == schema["required"] == list(schema["properties"])
    assert body["type"] in schema["properties"]["type"]["enum"]


def test_the_readme_has_the_same_table() -> None:
    rows = [
        f"| {meaning.status} | `{code}` | {meaning.retry_after_s or ''} | {meaning.text} |"
        for code, meaning in MEANINGS.items()
    ]
    assert "\n".join(rows) in (ROOT / "simulator/README.md").read_text("utf-8")


def test_every_status_is_that_of_a_code() -> None:
    known = {"200"} | {str(meaning.status) for meaning in MEANINGS.values()}
    for operation in operations(openapi(Policy())):
        assert set(operation["responses"]) <= known


def test_every_header_is_there_and_the_one_that_the_policy_names() -> None:
    policy = Policy(key_header="X-Id", forwarding=Forwarding(["X-Tenant"]))
    post = openapi(policy)["paths"]["/queues/{NAME}/messages"]["post"]
    assert [each["name"] for each in post["parameters"]] == ["NAME", "X-Id", *HEADERS, *ALWAYS, "x-tenant"]
    post = openapi(Policy(key_field="id"))["paths"]["/queues/{NAME}/messages"]["post"]
    assert [each["name"] for each in post["parameters"]] == ["NAME", *HEADERS, *ALWAYS]
    assert "the field id" in post["description"]


@given(st.text(st.characters(codec="ascii")) | st.text() | LONG | LONG.map('"{}"'.format))
def test_the_pattern_of_ids_is_what_the_gateway_takes(text: str) -> None:
    try:
        _key(text)
        is_taken = True
    except UsageError:
        is_taken = False
    post = openapi(Policy())["paths"]["/queues/{NAME}/messages"]["post"]
    pattern = next(each["schema"]["pattern"] for each in post["parameters"] if "pattern" in each["schema"])
    assert (re.search(pattern.replace("$", r"\Z"), text) is not None) is is_taken
    assert (re.search(KEY.replace("$", r"\Z"), text) is not None) is (is_taken and text != "")


def test_what_is_referred_to_is_there() -> None:
    document = openapi(Policy())

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if "$ref" in value else []
            for each in value.values():
                yield from references(each)
        elif isinstance(value, list):
            for each in value:
                yield from references(each)

    found = set(references(document))
    assert found == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert len({each["operationId"] for each in operations(document)}) == len(list(operations(document)))
