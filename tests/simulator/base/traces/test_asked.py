"""How traces and their destination are requested: by options on the command line, and by OpenTelemetry's own
variables.
"""

from __future__ import annotations

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.base.traces.asked import SpanDestination, checked_collector, shown, wish_in

URL = "http://127.0.0.1:4318"
FROM_VARIABLES = SpanDestination("", URL)


@pytest.mark.parametrize(
    ("typed", "environment", "wish"),
    [
        ("", {}, None),
        (URL, {}, SpanDestination(f"{URL}/v1/traces", URL)),
        (URL + "/", {}, SpanDestination(f"{URL}/v1/traces", URL + "/")),
        (URL + "/v1/traces", {}, SpanDestination(f"{URL}/v1/traces", URL + "/v1/traces")),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": URL}, FROM_VARIABLES),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": URL}, FROM_VARIABLES),
        ("", {"OTEL_TRACES_EXPORTER": "otlp"}, SpanDestination("", "http://localhost:4318")),
        ("", {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": URL}, None),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_SDK_DISABLED": "TRUE"}, None),
        (URL, {"OTEL_SDK_DISABLED": "true"}, None),
        ("", {"OTEL_SERVICE_NAME": "shop", "OTEL_TRACES_SAMPLER": "always_on"}, None),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        (
            "",
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:secret@host/x?key=1"},
            SpanDestination("", "http://host/x"),
        ),
    ],
)
def test_traces_are_asked_for_by_a_url_or_by_the_variables(
    typed: str, environment: dict[str, str], wish: SpanDestination | None
) -> None:
    assert wish_in(typed, environment) == wish


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin': there is otlp, and none"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': http/protobuf is spoken here, at port 4318",
        ),
    ],
)
def test_what_the_variables_ask_for_in_vain_is_said(environment: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as error:
        wish_in("", environment)
    assert str(error.value) == text


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:4318", "ftp://x", "http://", "http://[", "http://x:99999", "http://x:0", "x"),
        *("http://x?a=1", "http://x#a", "http://x/\n", "http://\xe4", "http://x:port"),
    ],
)
def test_what_is_no_url_of_a_collector_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(UsageError) as error:
        checked_collector(url)
    assert str(error.value).startswith("--traces is ")
    assert str(error.value).endswith(": write the URL of a collector, such as http://127.0.0.1:4318")
    assert str(error.value).isprintable()


def test_a_password_is_not_shown() -> None:
    assert shown("https://me:secret@host:4318/x/v1/traces?key=secret") == "https://host:4318/x/v1/traces"
