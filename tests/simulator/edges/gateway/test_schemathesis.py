"""Schemathesis reads the document of a running gateway, and sends requests: those that it allows, and many that it does
not.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trustme

from mqproto.simulator.edges.headers import ADMIN_QUEUE, ENCRYPT, RESPONSE_QUEUE, SIGN
from mqproto.simulator.topology import load
from tests.conformance import ROOT
from tests.simulator.gateways import GatewayProcess, hashed, options_for

EXAMPLES = int(os.environ.get("MQPROTO_OPENAPI_EXAMPLES", "0"))
"""How many requests of each kind are generated.

If this is 0, only a few are generated, and they are sent to one gateway only.
"""
SEED = 7
TOKEN = "a token of twenty-two"
TOKENS = f'[shop]\nsha256 = "{hashed(TOKEN)}"\nqueues = ["orders", "notes"]\n'
ASKING = f"""
[auth.openapi.token]
bearer = "{TOKEN}"
"""
"""The content of schemathesis's settings file; it is used only with a gateway that has tokens."""


def one_that_asks_for_all(folder: Path) -> dict[str, Any]:
    """Return the options of a gateway with tokens, required ids, and a rate that is never reached."""
    tokens = folder / "tokens.toml"
    tokens.touch(0o600)
    tokens.write_text(TOKENS)
    return {"tokens": tokens, "require_key": True, "rate": 1e6}


def one_that_asks_for_nothing(folder: Path) -> dict[str, Any]:
    return {}


def one_with_https(folder: Path) -> dict[str, Any]:
    """Return the options of a gateway for clients that show a certificate."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name in ("127.0.0.1", "client"):
        made = authority.issue_cert(name)
        made.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
        (folder / f"{name}.pem").chmod(0o600)
    shown = folder / "127.0.0.1.pem"
    return {"tls_certificate": shown, "tls_key": shown, "tls_clients": folder / "ca.pem"}


def narrow(document: dict[str, Any]) -> None:
    """Narrow the document by facts that no schema can state, such as which queues exist.

    Also forbid properties that the document does not list, so that gaps in it are found.
    """

    def close(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("type") == "object" and "properties" in value:
                value["unevaluatedProperties"] = False
            value = list(value.values())
        for each in value if isinstance(value, list) else []:
            close(each)

    close(document["components"]["schemas"])
    for path in document["paths"].values():
        for operation in path.values():
            known = operation.get("parameters", [])
            operation["parameters"] = [each for each in known if each["name"] not in (ENCRYPT, SIGN)]
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "NAME":
                    parameter["schema"] = {"enum": ["orders", "notes"]}
                elif parameter["name"] == RESPONSE_QUEUE:
                    parameter["schema"] = {"enum": ["", "notes", "destination%5Corders"]}
                elif parameter["name"] == ADMIN_QUEUE:  # No transactional queue takes acknowledgments.
                    parameter["schema"] = {"enum": ["", "notes", "destination%5Cnotes"]}


@pytest.mark.long
@pytest.mark.parametrize(
    "configured",
    [one_that_asks_for_all, *([one_that_asks_for_nothing, one_with_https] if EXAMPLES else [])],
)
async def test_a_gateway_does_what_its_document_says(
    configured: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    """This runs all checks of schemathesis, in all its phases."""
    topology = load("three-node").with_free_ports()
    options = configured(tmp_path)
    gateway = GatewayProcess(options_for(topology, tmp_path, **options))
    try:
        await gateway.start()
        told = await asked(tmp_path, gateway.port, options)
    finally:
        await gateway.kill()
    assert told.returncode == 0, told.stdout.decode()
    assert b"Stateful" in told.stdout
    assert b"No issues found" in told.stdout


async def asked(folder: Path, port: int, options: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    """Return what schemathesis reports about a gateway."""
    url, tls, context = f"http://127.0.0.1:{port}", [], ssl.create_default_context()
    if "tls_clients" in options:
        authority, shown = str(folder / "ca.pem"), str(folder / "client.pem")
        url, tls = f"https://127.0.0.1:{port}", ["--tls-verify", authority, "--request-cert", shown]
        context.load_verify_locations(authority)
        context.load_cert_chain(shown)
    async with httpx.AsyncClient(verify=context, trust_env=False) as client:
        document = (await client.get(f"{url}/openapi.json")).json()
    narrow(document)
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "schemathesis.toml").write_text(ASKING if "tokens" in options else "")
    return await trio.run_process(
        [
            *(
                sys.executable,
                "-m",
                "schemathesis.cli",
                "--no-color",
                "run",
                "openapi.json",
                "--url",
                url,
                *tls,
            ),
            *(
                "--checks",
                "all",
                "--continue-on-failure",
                "--seed",
                str(SEED),
                "--generation-database",
                "none",
            ),
            *("--max-examples", str(EXAMPLES or 2), "--suppress-health-check", "all"),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.simulator.edges.gateway.asking",
        },
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
