"""The guard of a queue manager that has keys.  [MS-MQQB] 3.1.5.8.3, 3.1.7.1.4, 3.1.7.1.5

The guard's `Keys` say who owns each key. They replace the directory, and the store of private keys. The guard's owner
may replace these `Keys` at any time.

The guard authenticates last, although 3.1.5.8.3 does so first. A signature covers the body in clear, so the message
must be decrypted before that. The result is revealed only after both steps have succeeded.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.security.algorithms import (
    AES,
    BASE,
    ENHANCED,
    PROVIDERS,
    Provider,
    cipher_word,
    provider_by_privacy_level,
)
from mqproto.security.caches import AgeingCache, CachedSymmetricKey, ReceiveName, SendName
from mqproto.security.certificates import Certificate, certificate_in
from mqproto.security.keys import KeyPair, PublicKey
from mqproto.security.messages import new_sending_key, openings, sealed
from mqproto.security.refusals import ProtectionError, bad_signature, unsupported
from mqproto.security.signing import signed, verified
from mqproto.turn.effects import Note
from mqproto.turn.guard import WEAK_CIPHERS, Signer, is_encrypted, is_signed, with_proof
from mqproto.wire import Guid, UserMessage, guid_text, sid_text
from mqproto.wire.layouts.security import QUEUE_MANAGER

SIGNATURES: Final = 8_192
"""The maximum number of signatures to remember; each takes about 300 bytes."""


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys and certificates that a queue manager knows.

    own: our key pairs for key exchange, by the provider's word, the present one first.
    signers: the signing keys for applications, by name, each with the sender that signed messages state.
    managers: each queue manager's public keys for key exchange, by the provider's word: PublicEncryptionKeyList.
    users: the certificates of each user, by SID, or of each queue manager, by GUID: Certificates of a User.
    """

    own: Mapping[str, Sequence[KeyPair]] = field(default_factory=dict)
    signers: Mapping[str, tuple[Signer, KeyPair]] = field(default_factory=dict)
    managers: Mapping[Guid, Mapping[str, PublicKey]] = field(default_factory=dict)
    users: Mapping[bytes, Collection[bytes]] = field(default_factory=dict)


class KeyGuard:
    """Opens, verifies, signs and seals messages.

    Args:
        random: returns random bytes for session keys; worlds pass in a source of their own.
    """

    def __init__(
        self, keys: Keys, settings: Settings, random: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._keys = keys
        self._settings = settings
        self._random = random
        self.attach(Timers(), [])

    def attach(self, timers: Timers, notes: list[Note]) -> None:
        self._timers, self._notes = timers, notes
        settings = self._settings
        keys_ms, users_ms = settings.symmetric_key_short_lifetime_ms, settings.user_cert_lifetime_ms
        send_size = settings.send_symmetric_key_cache_size
        self._receive = AgeingCache[ReceiveName, CachedSymmetricKey](
            settings.receive_symmetric_key_cache_size, keys_ms
        )
        self._send = AgeingCache[SendName, CachedSymmetricKey](send_size, keys_ms)
        self._send_base = AgeingCache[SendName, CachedSymmetricKey](send_size, keys_ms)
        self._users = AgeingCache[tuple[bytes, bytes], None](settings.user_cert_cache_size, users_ms)
        self._signatures = OrderedDict[bytes, tuple[Guid, int]]()
        """For each recent signature, the first message that had it."""
        self._caches: dict[Timer, AgeingCache[Any, Any]] = {
            Timer.RECEIVE_SYMMETRIC_KEY_CACHE_CLEANUP: self._receive,
            Timer.SEND_SYMMETRIC_KEY_CACHE_CLEANUP: self._send,
            Timer.SEND_BASE_SYMMETRIC_KEY_CACHE_CLEANUP: self._send_base,
            Timer.USER_CERT_CACHE_CLEANUP: self._users,
        }

    def renew(self, keys: Keys) -> None:
        """Use these keys from now on, and forget what was cached for keys that have changed."""
        before, self._keys = self._keys, keys
        for manager in {*before.managers, *keys.managers}:
            if before.managers.get(manager) != keys.managers.get(manager):
                self._send.forget(manager)
                self._send_base.forget(manager)

    def opened(self, message: UserMessage, weak: Collection[str], now: Moment) -> UserMessage:
        refusal: ProtectionError | None = None
        for plain in self._openings(message, weak, now) if is_encrypted(message) else (message,):
            if not is_signed(plain):
                return with_proof(plain, 0)
            try:
                kind, certificate = verified(plain)
            except ProtectionError as error:
                refusal = refusal or error
                continue
            self._see_sender(plain, certificate, now)
            self._see_whether_new(plain)
            return with_proof(plain, kind)
        assert refusal is not None, "there is one at least"
        try:
            raise refusal
        finally:
            del refusal  # It refers to this frame, and would keep the message until garbage collection.

    def _openings(self, message: UserMessage, weak: Collection[str], now: Moment) -> Iterator[UserMessage]:
        """Yield the possible clear forms of an encrypted message.

        Raises:
            ProtectionError: the message is refused.
        """
        word = self._see_cipher(message, weak)
        reject_reduced = self._settings.reject_enhanced_rc2_using_40_bit_keys
        found = openings(message, self._keys.own, self._receive, now.uptime_ms, reject_reduced=reject_reduced)
        for number, plain in enumerate(found):
            self._start(Timer.RECEIVE_SYMMETRIC_KEY_CACHE_CLEANUP)
            if word in WEAK_CIPHERS and not number:
                self._note("weak-cipher-received", message, cipher=word)
            yield plain

    def _see_cipher(self, message: UserMessage, weak: Collection[str]) -> str:
        """Check a message's cipher, and return its short name.

        Raises:
            ProtectionError: the cipher is unknown, or weak and not accepted by the queue.
        """
        properties = message.properties
        provider = provider_by_privacy_level(properties.privacy_level)
        word = cipher_word(provider, provider.algorithm(properties.encryption_algorithm))
        if word in WEAK_CIPHERS and word not in weak:
            raise unsupported(
                f"{word} is weak, and the queue does not take it: weak_ciphers names what it takes"
            )
        return word

    def _see_sender(self, message: UserMessage, certificate: Certificate, now: Moment) -> None:
        """If a signed message names a sender, check that its certificate belongs to that sender.  3.1.5.8.3

        Without a sender, the signature proves only that the message is as its signer wrote it.

        Raises:
            ProtectionError: the certificate is not the sender's.
        """
        security = message.security
        assert security is not None, "only what has a SecurityHeader is signed"
        if not certificate.since_s <= now.utc_s <= certificate.until_s:
            self._note("certificate-not-valid", message, subject=certificate.subject)
        if not security.sender_id_type:
            return
        name = security.sender_id, certificate.der
        if self._users.has(name):
            return
        if certificate.der not in self._keys.users.get(security.sender_id, ()):
            raise bad_signature(f"the certificate is none that is known here of {_sender(message)}")
        self._users.add(name, None, now.uptime_ms)
        self._start(Timer.USER_CERT_CACHE_CLEANUP)

    def _see_whether_new(self, message: UserMessage) -> None:
        """Log a signature that was seen before on another message.

        No signature covers MessageID or the time, so messages can be replayed. A replay looks like a sender that
        repeats itself, so the message is accepted.
        """
        user, listed = message.user, message.multi_queue_format
        assert message.security is not None, "only what has a SecurityHeader is signed"
        signature = message.security.signature or (listed.signature.signature if listed is not None else b"")
        name = user.source_queue_manager, user.message_id
        before = self._signatures.get(signature, name)
        if before != name:
            first = f"{guid_text(before[0])}\\{before[1]}"
            self._note("signature-seen-before", message, first=first)
        self._signatures[signature] = before
        self._signatures.move_to_end(signature)
        if len(self._signatures) > SIGNATURES:
            self._signatures.popitem(last=False)

    def check(self, message: UserMessage, manager: Guid) -> None:
        if is_encrypted(message):
            self._choose(message, manager)

    def signer(self, name: str) -> Signer:
        found = self._keys.signers.get(name)
        if found is None:
            known = ", ".join(sorted(self._keys.signers)) or "none"
            raise UsageError(
                f"there is no key {name!r} here to sign with; there is {known}; `mqproto keys make` makes the node's,"
                " 'signing', and with --user NAME that of a user"
            )
        return found[0]

    def name_of(self, certificate: bytes) -> str:
        for name, (signer, _) in self._keys.signers.items():
            if signer.certificate == certificate:
                return name
        return ""

    def signed(self, message: UserMessage) -> UserMessage:
        security = message.security
        assert security is not None, "it has a certificate"
        name = self.name_of(security.sender_cert)
        if not name:
            raise UsageError("the key is gone with which the message is to be signed: import it again")
        return signed(
            message,
            self._keys.signers[name][1],
            certificate_in(security.sender_cert),
            hash_algorithm=message.properties.hash_algorithm,
            sender_id=security.sender_id,
            sender_id_type=security.sender_id_type,
        )

    def sealed(self, message: UserMessage, now: Moment) -> UserMessage:
        manager = message.user.queue_manager_address
        provider, algorithm, receiver = self._choose(message, manager)
        is_base = provider is BASE
        cache = self._send_base if is_base else self._send
        name = SendName(manager, provider.word, algorithm)
        sending = cache.find(name)
        if sending is None:
            reduced = self._settings.send_enhanced_rc2_using_40_bit_keys
            sending = new_sending_key(provider, algorithm, receiver, reduced=reduced, random=self._random)
            cache.add(name, sending, now.uptime_ms)
            self._start(
                Timer.SEND_BASE_SYMMETRIC_KEY_CACHE_CLEANUP
                if is_base
                else Timer.SEND_SYMMETRIC_KEY_CACHE_CLEANUP
            )
        word = cipher_word(provider, provider.algorithm(algorithm))
        if word in WEAK_CIPHERS:
            self._note("weak-cipher-sent", message, cipher=word)
        return sealed(message, sending)

    def _choose(self, message: UserMessage, manager: Guid) -> tuple[Provider, int, PublicKey]:
        """Choose the provider, the algorithm and the receiver's key.  3.1.7.1.5

        PrivacyLevel is only the minimum: the strongest provider for which the receiver has a key is used. A message
        that names an algorithm is encrypted with that algorithm, according to note <66>.

        Raises:
            UsageError: the receiver has no suitable key.
        """
        properties = message.properties
        known = self._keys.managers.get(manager)
        if not known:
            raise UsageError(
                f"no public key of queue manager {guid_text(manager)} is known, so nothing can be encrypted for it: "
                "name its keys in the topology, or with mqproto peers add --keys"
            )
        wanted = provider_by_privacy_level(properties.privacy_level)
        named = properties.encryption_algorithm
        stronger = PROVIDERS[PROVIDERS.index(wanted) :]
        for provider in (wanted,) if named else reversed(stronger):
            if provider.word in known:
                return provider, named or self._preferred(provider), known[provider.word]
        has = ", ".join(sorted(known))
        raise UsageError(
            f"queue manager {guid_text(manager)} has no key for the {wanted.word} provider, only for {has}: get "
            "one from its operator, or name a cipher for those keys with --cipher"
        )

    def _preferred(self, provider: Provider) -> int:
        settings = self._settings
        return {
            AES: settings.preferred_advanced_algorithm,
            ENHANCED: settings.preferred_enhanced_algorithm,
            BASE: settings.preferred_base_algorithm,
        }[provider]

    def expired(self, timer: Timer, now: Moment) -> None:
        self._caches[timer].clean(now.uptime_ms)
        self._start(timer)

    def _start(self, timer: Timer) -> None:
        """Start the timer of a cache that is not empty."""
        deadline_ms = self._caches[timer].deadline_ms
        if deadline_ms is not None:
            self._timers.start(timer, self, deadline_ms)

    def _note(self, name: str, message: UserMessage, **facts: str | int) -> None:
        user = message.user
        about: dict[str, str | int] = {
            "source": guid_text(user.source_queue_manager),
            "message_id": user.message_id,
            "queue": str(user.destination_queue),
        }
        self._notes.append(Note(name, {**about, **facts}))


def _sender(message: UserMessage) -> str:
    security = message.security
    assert security is not None, "only what has a SecurityHeader names a sender"
    if security.sender_id_type == QUEUE_MANAGER:
        return f"queue manager {security.sender_id.hex()}"
    return sid_text(security.sender_id) or security.sender_id.hex()
