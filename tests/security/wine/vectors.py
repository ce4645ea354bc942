"""Wine's answers, for machines without Wine; `python -m tests.security.wine.vectors` asks Wine again.

The private key serves only these tests, and is public.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from mqproto.security import HASHES, PROVIDERS, new_key_pair
from mqproto.wire import public_key_blob
from mqproto.wire.layouts.keyblobs import RC2

FILE: Final = Path(__file__).with_name("vectors.json")
BODY: Final = b"a body of 23 bytes, odd"
BITS: Final = 512


@cache
def vectors() -> dict[str, Any]:
    """Return the stored answers.

    key: a private key as PEM.
    sealed: the SIMPLEBLOB and the body for that key, keyed by provider and algorithm.
    signed: signatures of BODY that the key `signer` verifies, keyed by hash.
    """
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def _write() -> None:
    from tests.security.wine.oracle import running

    own = new_key_pair(BITS)
    public = public_key_blob.encode(own.public.blob())
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as wine:
        sealed: list[dict[str, Any]] = []
        for provider in PROVIDERS:
            for number in provider.algorithms:
                bits = 8 * provider.key_bytes(number)
                effective = bits if number == RC2 else 0
                blob, body = wine.ask(
                    "seal", provider.word, f"{number:x}", bits, effective, "none", public, BODY
                )
                sealed.append(
                    {"provider": provider.word, "algorithm": number, "blob": blob.hex(), "body": body.hex()}
                )
        [signer] = wine.ask("make", "aes", "sign", 1_024)
        signed = {
            str(algorithm): wine.ask("sign", "aes", f"{algorithm:x}", BODY)[0].hex() for algorithm in HASHES
        }
    made = {"key": own.pem().decode(), "sealed": sealed, "signer": signer.hex(), "signed": signed}
    FILE.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    _write()
