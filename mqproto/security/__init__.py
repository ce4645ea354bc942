"""Keys, encryption and signatures. Begin with README.md.

Only this package imports pyca's `cryptography` and pycryptodome, which are installed with `pip install
'mqproto[security]'`. No other part of mqproto imports this package.
"""

from mqproto.security.algorithms import (
    ALGORITHMS,
    PROVIDERS,
    Algorithm,
    Provider,
    SessionKey,
    cipher_word,
    new_session_key,
    provider_by_privacy_level,
    provider_by_word,
)
from mqproto.security.caches import AgeingCache, CachedSymmetricKey, ReceiveName, SendName
from mqproto.security.certificates import Certificate, certificate_in, request_for, self_signed
from mqproto.security.ciphers import decrypt, encrypt
from mqproto.security.evidence import Examiner, Opening, Proof
from mqproto.security.exchange import (
    open_session_key,
    open_session_keys,
    seal_session_key,
    session_keys_in,
)
from mqproto.security.guard import KeyGuard, Keys
from mqproto.security.keys import KeyPair, PublicKey, new_key_pair
from mqproto.security.messages import new_sending_key, opened, sealed
from mqproto.security.refusals import ProtectionError
from mqproto.security.signatures import HASHES, sign, verify
from mqproto.security.signing import SignatureKind, hashed, signed, verified

__all__ = [
    "ALGORITHMS",
    "HASHES",
    "PROVIDERS",
    "AgeingCache",
    "Algorithm",
    "CachedSymmetricKey",
    "Certificate",
    "Examiner",
    "KeyGuard",
    "KeyPair",
    "Keys",
    "Opening",
    "Proof",
    "ProtectionError",
    "Provider",
    "PublicKey",
    "ReceiveName",
    "SendName",
    "SessionKey",
    "SignatureKind",
    "certificate_in",
    "cipher_word",
    "decrypt",
    "encrypt",
    "hashed",
    "new_key_pair",
    "new_sending_key",
    "new_session_key",
    "open_session_key",
    "open_session_keys",
    "opened",
    "provider_by_privacy_level",
    "provider_by_word",
    "request_for",
    "seal_session_key",
    "sealed",
    "self_signed",
    "session_keys_in",
    "sign",
    "signed",
    "verified",
    "verify",
]
