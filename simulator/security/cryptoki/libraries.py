"""Libraries of manufacturers, each loaded once by a process, and one session with each token for all keys in it.

One thread at a time asks, as libraries need not stand more.

Sessions and keys are numbers, and one that was started anew counts from 1 again. So what was found in a session is used
as long as nobody has seen that one was lost; then all of them are, before another is opened.

Tokens lock themselves when a wrong PIN comes several times. A PIN that a token has refused is tried no second time, and
none where the token says that a wrong one came since the last right one: else a node that systemd starts again and
again would lock it.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pkcs11
from pkcs11 import Attribute, PKCS11Error, TokenFlag

from mqproto.base.errors import UsageError
from mqproto.base.foreign import shown
from simulator.security.keyuris import KeyUri
from simulator.security.privatefile import read_private

LOGIN: Final = "log in once with the token's own tool, such as pkcs11-tool --login --list-objects"
OF_PIN: Final = (
    pkcs11.PinExpired,
    pkcs11.PinIncorrect,
    pkcs11.PinInvalid,
    pkcs11.PinLenRange,
    pkcs11.PinLocked,
)
"""A PIN has been refused, so the same must not be tried again."""


class AbsentError(UsageError):
    """A token, or what should be in it, is not there now."""


class Library:
    """One library, and the sessions with its tokens.

    lock: whoever asks anything of a token has it.
    """

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self._path = path
        self._sessions: dict[tuple[str, bytes], pkcs11.Session] = {}
        """By label and serial number of a token."""
        self._refused: set[tuple[str, bytes, bytes]] = set()
        """Tokens, and the hash of a PIN that is none of theirs."""
        self._salt = secrets.token_bytes(16)

    def session(self, uri: KeyUri) -> pkcs11.Session:
        """The session with a token, logged in.

        Raises:
            UsageError: there is none, and why.
        """
        try:
            return self._session(uri)
        except AbsentError:
            # Some libraries see what was plugged in, or was started again, only when they begin anew. To other tokens
            # this costs one more login.
            self.lost()
            with told(f"{self._path}: the library does not begin anew"):
                self._lib().reinitialize()
            return self._session(uri)

    def has(self, session: pkcs11.Session) -> bool:
        """Whether nobody has seen that it was lost."""
        return any(each is session for each in self._sessions.values())

    def lost(self) -> None:
        """A session was lost, and maybe all."""
        sessions = [*self._sessions.values()]
        self._sessions.clear()
        for session in sessions:
            with suppress(PKCS11Error):
                session.close()

    def pin(self, uri: KeyUri, token: pkcs11.Token) -> str:
        """The PIN of a token, if it may be tried.

        Raises:
            UsageError: it cannot be read, or must not be tried.
        """
        if uri.pin_source is None:
            raise UsageError(
                f"{uri.where} asks for a PIN: add pin-source=file: and the file that has it to the URI"
            )
        pin = _read_pin(uri.pin_source)
        if (*_name(token), self._hash(pin)) in self._refused:
            raise UsageError(refusal(uri, pkcs11.PinIncorrect()))
        return pin

    def refused(self, pin: str, token: pkcs11.Token) -> None:
        """It is none of this token's."""
        self._refused.add((*_name(token), self._hash(pin)))

    def _session(self, uri: KeyUri) -> pkcs11.Session:
        token = self._token(uri)
        if not all(map(_is_alive, self._sessions.values())):
            self.lost()
        known = self._sessions.get(_name(token))
        if known is not None:
            return known
        pin = None
        if token.flags & TokenFlag.LOGIN_REQUIRED:
            _check_flags(uri, token)
            pin = self.pin(uri, token)
        with told(f"{uri.where} opens no session"):
            try:
                session = token.open(user_pin=pin)
            except pkcs11.UserAlreadyLoggedIn:
                session = token.open()
            except OF_PIN as error:
                assert pin is not None, "else nobody logs in"
                self.refused(pin, token)
                raise UsageError(refusal(uri, error)) from None
        self._sessions[_name(token)] = session
        return session

    def _token(self, uri: KeyUri) -> pkcs11.Token:
        found, others = list[pkcs11.Token](), list[pkcs11.Token]()
        with told(f"{self._path}: the library tells of no tokens"):
            slots = self._lib().get_slots(token_present=True)
        for slot in slots:
            with suppress(PKCS11Error):
                token = slot.get_token()
                if token.flags & TokenFlag.TOKEN_INITIALIZED:
                    (found if _fits(uri, token) else others).append(token)
        if not found:
            there = ", ".join(shown(_text(token.label)) for token in others) or "none"
            raise AbsentError(
                f"{uri.where} is not there; {self._path} has {there}: plug it in, or name another"
            )
        if len(found) > 1:
            serials = ", ".join(shown(_text(token.serial)) for token in found)
            raise UsageError(f"{uri.where}: there are {len(found)}: add serial=, one of {serials}")
        return found[0]

    def _lib(self) -> Any:
        if not self._path.is_file():
            raise UsageError(
                f"{self._path}: no such library: name that of the token's manufacturer as module-path"
            )
        try:
            return pkcs11.lib(str(self._path))
        except PKCS11Error as error:
            why = str(error).rpartition(": ")[2] or type(error).__name__
            raise AbsentError(f"{self._path}: no PKCS #11 library that works: {shown(why)}") from None

    def _hash(self, pin: str) -> bytes:
        return hashlib.blake2b(pin.encode("utf-8"), key=self._salt).digest()


def library_at(path: Path) -> Library:
    """The library at a path, the same one each time."""
    with _LOCK:
        return _LIBRARIES.setdefault(path, Library(path))


@contextmanager
def told(what: str) -> Iterator[None]:
    """What goes wrong with a token, in one line. The names of its errors have neither PIN nor key in them."""
    try:
        yield
    except PKCS11Error as error:
        raise AbsentError(f"{what}: {type(error).__name__}") from None


def refusal(uri: KeyUri, error: PKCS11Error) -> str:
    """Why a PIN was refused, and what to do."""
    if isinstance(error, pkcs11.PinLocked):
        return f"{uri.where}: its PIN is locked: unlock it with the token's own tool"
    return (
        f"{uri.where} refuses the PIN in {uri.pin_source}, which is not tried again: correct it, and {LOGIN}"
    )


def attribute(key: Any, name: Attribute, default: Any) -> Any:
    """One that a token need not have."""
    try:
        return key[name]
    except (pkcs11.AttributeTypeInvalid, pkcs11.AttributeSensitive, pkcs11.FunctionFailed, KeyError):
        return default


_LIBRARIES: Final[dict[Path, Library]] = {}
_LOCK: Final = threading.Lock()


def _check_flags(uri: KeyUri, token: pkcs11.Token) -> None:
    """See that a wrong PIN would do no harm."""
    if token.flags & TokenFlag.USER_PIN_LOCKED:
        raise UsageError(refusal(uri, pkcs11.PinLocked()))
    if not token.flags & TokenFlag.USER_PIN_INITIALIZED:
        raise UsageError(f"{uri.where} has no PIN yet: give it one with the token's own tool")
    if token.flags & (TokenFlag.USER_PIN_COUNT_LOW | TokenFlag.USER_PIN_FINAL_TRY):
        raise UsageError(
            f"{uri.where}: a wrong PIN was tried, and another might lock it, so none is tried here: see that "
            f"{uri.pin_source} has the right one, and {LOGIN}"
        )


def _read_pin(path: Path) -> str:
    try:
        pin = read_private(path, "the PIN").decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: the PIN has to be in it") from None
    except UnicodeDecodeError:
        pin = ""
    if not pin or "\n" in pin or "\0" in pin:
        raise UsageError(f"{path}: one line with the PIN has to be in it, and nothing else")
    return pin


def _fits(uri: KeyUri, token: pkcs11.Token) -> bool:
    wanted = (uri.token, uri.serial, uri.manufacturer, uri.model)
    has = (token.label, token.serial, token.manufacturer_id, token.model)
    return all(not one or one == _text(other) for one, other in zip(wanted, has, strict=True))


def _text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.rstrip(" \0")


def _name(token: pkcs11.Token) -> tuple[str, bytes]:
    return token.label, bytes(token.serial)


def _is_alive(session: pkcs11.Session) -> bool:
    """Whether a session is there. Not by a search: python-pkcs11 complains on the standard error if that fails."""
    try:
        session.generate_random(8)
    except (pkcs11.RandomNoRNG, pkcs11.FunctionNotSupported):
        return True
    except PKCS11Error:
        return False
    return True
