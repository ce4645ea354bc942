"""Faults in how messages are encrypted and signed, decrypted and verified.

The fault is put into each guard that a node is given, because the guard's module needs libraries that may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mqproto.base.errors import UsageError
from mqproto.manager import outcomes
from mqproto.manager.arriving.insequence import InSequence
from mqproto.simulator.world.world import World
from mqproto.turn.guard import SIGNED_20, with_proof
from tests.plants.planting import plant


def _each_guard(sound: Any, change: Callable[[Any], None]) -> Any:
    def guard_of(self: World, name: str, settings: Any) -> Any:
        guard = sound(self, name, settings)
        if self.keyring is not None:
            change(guard)
        return guard

    return guard_of


@plant(World, "guard_of", "secrets_stay_secret", "encrypted_with_the_latest_key")
def send_in_clear_what_cannot_be_encrypted(sound: Any) -> Any:
    """The key no longer exists, but the message leaves anyway."""

    def change(guard: Any) -> None:
        seal = guard.sealed

        def sealed(message: Any, now: Any) -> Any:
            try:
                return seal(message, now)
            except UsageError:
                return message

        guard.sealed = sealed

    return _each_guard(sound, change)


@plant(World, "guard_of", "encrypted_with_the_latest_key")
def keep_session_keys_when_keys_change(sound: Any) -> Any:
    """The receiver has a different key, but session keys that were made for the previous one are still used."""

    def change(guard: Any) -> None:
        guard.renew = lambda keys: setattr(guard, "_keys", keys)

    return _each_guard(sound, change)


@plant(World, "guard_of", "given_up_for_a_reason", "no_error_of_our_own")
def lose_the_keys_of_others_with_ones_own(sound: Any) -> Any:
    """A node that is told about one key loses the keys of all others."""

    def change(guard: Any) -> None:
        renew = guard.renew
        guard.renew = lambda keys: renew(replace(keys, managers={}))

    return _each_guard(sound, change)


@plant(World, "guard_of", "proofs_are_true")
def say_of_every_message_that_it_was_verified(sound: Any) -> Any:
    """AU is set, although nobody has looked at a signature."""

    def change(guard: Any) -> None:
        opened = guard.opened
        guard.opened = lambda message, weak, now: with_proof(opened(message, weak, now), SIGNED_20)

    return _each_guard(sound, change)


@plant(InSequence, "_release", "handed_out_as_it_was_sent", "proofs_are_true")
def forget_to_open_what_was_held(sound: Any) -> Any:
    """A message that closes a gap is decrypted, but those held behind it are not."""

    class Blind:
        def opened(self, message: Any, weak: Any, now: Any) -> Any:
            return message

    def release(self: Any, *arguments: Any) -> None:
        guard, self._desk.guard = self._desk.guard, Blind()
        sound(self, *arguments)
        self._desk.guard = guard

    return release


@plant(outcomes, "repeats_body", "secrets_stay_secret")
def repeat_secrets_in_refusals(sound: Any) -> Any:
    """An administration acknowledgment has the body of a message that was decrypted before it ended."""
    return lambda ending, message: not (message.security and message.security.body_encrypted)
