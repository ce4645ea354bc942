"""Private keys that tokens hold: found, tried, used, and found again when a session was lost.

    found by its URI ──► looked at, and tried ──► used, for as long as the process runs
                                ▲                   │ the session was lost
                                └───────────────────┘ when it is needed next

An ill-encrypted block and a lost session are told by the same errors: SoftHSM has CKR_GENERAL_ERROR for both. And the
error takes its own time, 0.2 ms of SoftHSM's 2.2. So after a block that the token has not opened it is asked for one
that it can open; if it does, the block was wrong. After one that it has opened it is asked for one that it cannot open.
Both take the time of one block of either kind, so a stranger learns nothing from it. It is needed once for each session
key, and a sender uses one for many messages.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import pkcs11
from pkcs11 import Attribute, KeyType, Mechanism, ObjectClass, PKCS11Error

from mqproto.base.errors import UsageError
from mqproto.base.foreign import shown
from mqproto.security import Certificate, HeldKeyPair, KeyAwayError, PublicKey, sign
from mqproto.security.signatures import SHA_256
from simulator.security.cryptoki.libraries import OF_PIN, AbsentError, attribute, library_at, refusal, told
from simulator.security.keyuris import KeyUri

RETRY_S: Final = 1.0
"""How long nobody asks again after a token could not be had: libraries take their time to find nothing."""
TRIAL: Final = b"is it the key that it says?"
OF_SESSION: Final = (
    pkcs11.DeviceError,
    pkcs11.DeviceRemoved,
    pkcs11.SessionClosed,
    pkcs11.SessionHandleInvalid,
    pkcs11.TokenNotPresent,
    pkcs11.UserNotLoggedIn,
)
"""What says by itself that a session is lost."""
T = TypeVar("T")


class HeldKey:
    """One private key in a token: a `Holder`.

    Args:
        uri: how it is named.
        is_for_signatures: what it has to do; else it decrypts.

    Raises:
        UsageError: it is not there, or does not do that.
    """

    def __init__(self, uri: KeyUri, *, is_for_signatures: bool) -> None:
        self._uri = uri
        self._does = (Attribute.SIGN, "sign") if is_for_signatures else (Attribute.DECRYPT, "decrypt")
        self._library = library_at(uri.module)
        self._failed: tuple[float, str] | None = None
        """When the token could not be had, and why."""
        with self._library.lock:
            self._open, self._public = self._find()
            with told(f"{uri} does not say what it is"):
                self._asks_each_time = bool(attribute(self._open[1], Attribute.ALWAYS_AUTHENTICATE, False))
        self._good, self._bad = self._public.encrypted(TRIAL), _nothing(self._public)

    def decrypted(self, block: bytes) -> bytes | None:
        def ask(key: Any, pin: str | None) -> bytes | None:
            def opened(each: bytes) -> bytes:
                return bytes(key.decrypt(each, mechanism=Mechanism.RSA_PKCS, pin=pin))

            try:
                found = opened(block)
            except OF_PIN + OF_SESSION:
                raise
            except PKCS11Error as error:
                if opened(self._good) != TRIAL:
                    raise error from None
                return None
            with suppress(PKCS11Error):
                opened(self._bad)
            return found

        return self._ask(ask)

    def signed(self, digest_info: bytes) -> bytes:
        return self._ask(lambda key, pin: bytes(key.sign(digest_info, mechanism=Mechanism.RSA_PKCS, pin=pin)))

    def certificate(self) -> bytes | None:
        """The certificate that lies beside the key, with the same CKA_ID; None if there is none.

        Raises:
            KeyAwayError: the token is away.
        """

        def ask(key: Any, pin: str | None) -> bytes | None:
            identifier = attribute(key, Attribute.ID, b"")
            beside = key.session.get_objects(
                {Attribute.CLASS: ObjectClass.CERTIFICATE, Attribute.ID: identifier}
            )
            found = list(beside) if identifier else []
            return bytes(found[0][Attribute.VALUE]) if found else None

        return self._ask(ask)

    def _ask(self, ask: Callable[[Any, str | None], T]) -> T:
        """Have the token do something; once more, if its session was lost since the last time.

        Raises:
            KeyAwayError: it does not.
        """
        with self._library.lock:
            try:
                return self._asked(ask)
            except AbsentError:
                pass
            except UsageError as error:
                raise KeyAwayError(str(error)) from None
            try:
                return self._asked(ask)
            except UsageError as error:
                self._failed = time.monotonic(), str(error)
                raise KeyAwayError(str(error)) from None

    def _asked(self, ask: Callable[[Any, str | None], T]) -> T:
        """The same, once.

        Raises:
            AbsentError: the session was lost, or cannot be had.
            UsageError: it would not help to ask again.
        """
        session, key = self._open
        if not self._library.has(session):
            if self._failed is not None and time.monotonic() < self._failed[0] + RETRY_S:
                raise UsageError(self._failed[1])
            self._open, public = self._find()
            if public != self._public:
                self._library.lost()
                raise UsageError(
                    f"{self._uri} is another one than before: mqproto keys import it, with --replace"
                )
            self._failed = None
            session, key = self._open
        pin = self._library.pin(self._uri, session.token) if self._asks_each_time else None
        try:
            return ask(key, pin)
        except PKCS11Error as error:
            self._library.lost()
            if isinstance(error, OF_PIN) and pin is not None:
                self._library.refused(pin, session.token)
                raise UsageError(refusal(self._uri, error)) from None
            raise AbsentError(f"{self._uri} does not answer: {type(error).__name__}") from None

    @property
    def public(self) -> PublicKey:
        """Its public half."""
        return self._public

    def _find(self) -> tuple[tuple[pkcs11.Session, Any], PublicKey]:
        """The session with the token, the key, and its public half."""
        session = self._library.session(self._uri)
        key = self._found(session)
        with told(f"{self._uri} does not say what it is"):
            numbers = self._numbers(session, key)
        try:
            return (session, key), PublicKey.from_numbers(*numbers)
        except UsageError as error:
            raise UsageError(f"{self._uri}: {error}") from None

    def _found(self, session: pkcs11.Session) -> Any:
        with told(f"{self._uri} cannot be looked for"):
            private = {Attribute.CLASS: ObjectClass.PRIVATE_KEY}
            name = {Attribute.LABEL: self._uri.object, Attribute.ID: self._uri.id}
            found = list(
                session.get_objects(private | {each: value for each, value in name.items() if value})
            )
            if not found:
                labels = (attribute(key, Attribute.LABEL, "") for key in session.get_objects(private))
                there = ", ".join(sorted(shown(str(label)) for label in labels)) or "none"
                raise AbsentError(
                    f"{self._uri} is not there; its private keys are {there}: name one, or make it"
                )
            if len(found) > 1:
                raise UsageError(f"{self._uri}: there are {len(found)}: add id= to the URI")
            [key] = found
            if attribute(key, Attribute.KEY_TYPE, None) != KeyType.RSA:
                raise UsageError(f"{self._uri} is not of RSA, which is all that MSMQ knows: name another")
            does, word = self._does
            if not attribute(key, does, False):
                raise UsageError(f"{self._uri} may not {word} (CKA_{does.name}): make one that may")
            return key

    def _numbers(self, session: pkcs11.Session, key: Any) -> tuple[int, int]:
        """Modulus and public exponent, of the private key, or of the public one beside it."""
        beside = session.get_objects(
            {Attribute.CLASS: ObjectClass.PUBLIC_KEY, Attribute.ID: attribute(key, Attribute.ID, b"")}
        )
        for each in (key, *beside):
            modulus = attribute(each, Attribute.MODULUS, b"")
            exponent = attribute(each, Attribute.PUBLIC_EXPONENT, b"")
            if modulus and exponent:
                return int.from_bytes(modulus, "big"), int.from_bytes(exponent, "big")
        raise UsageError(f"{self._uri} hides its public half: put the public key beside it, with the same id")


def key_in_token(
    uri: KeyUri, seed: bytes, *, is_for_signatures: bool
) -> tuple[HeldKeyPair, Certificate | None]:
    """A key pair in a token, which has been tried, and the certificate beside it, if it signs and there is one.

    Args:
        seed: as `HeldKeyPair` wants it.

    Raises:
        UsageError: there is none that can be used, and why.
    """
    key = HeldKey(uri, is_for_signatures=is_for_signatures)
    try:
        pair = HeldKeyPair(key.public, key, seed)
        if not is_for_signatures:
            if key.decrypted(pair.public.encrypted(TRIAL)) != TRIAL:
                raise UsageError("it does not open what is encrypted for it: make another")
            return pair, None
        sign(SHA_256, pair, TRIAL)
        beside = key.certificate()
        return pair, None if beside is None else Certificate.from_bytes(beside)
    except KeyAwayError as error:
        raise UsageError(str(error)) from None
    except UsageError as error:
        raise UsageError(f"{uri}: {error}") from None


def _nothing(public: PublicKey) -> bytes:
    """A block that no key opens, all but certainly."""
    return bytes(1) + secrets.token_bytes(public.bits // 8 - 1)
