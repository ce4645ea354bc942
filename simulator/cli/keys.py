"""The commands that manage the keys of a node: `mqproto keys make`, `show`, `export` and `import`.

A private key is never printed. It leaves its folder only for a new file that only its owner may read.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, Printout, run_task
from mqproto.simulator.command.options import Commands, only_node
from mqproto.simulator.security.keyfiles import (
    ASIDE,
    OF_USER,
    SIGNING,
    KeptKeyPair,
    KeyFiles,
    certified,
    is_for_signatures,
    keep_all,
    public_blob,
    read_private,
    write_new,
)
from mqproto.simulator.topology.places import keys_path, public_path
from mqproto.wire.layouts.keyblobs import MINIMUM_BITS, RSA_KEY_EXCHANGE, RSA_SIGN

if TYPE_CHECKING:
    from mqproto.security import Certificate, KeyPair
    from mqproto.simulator.topology.places import Place

USUAL: Final = ("aes", "enhanced")
"""The providers for which keys are made if none is named.

The base provider is left out: its 512 bits protect nothing.
"""
USER_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
FORMS: Final = ("blob", "pem", "certificate", "request")

app = Commands(help="Manage the keys of a node, for encrypting messages to it and for its signatures.")
NodeArgument = Annotated[str | None, ARGUMENT, "The node; needed if the topology has several.", value("NODE")]
UseOption = Annotated[
    str, "What the key is for: aes, enhanced, base, signing or user-NAME.", "--use", value("USE")
]
ReplaceOption = Annotated[bool, "Replace an existing key; the old one is kept, named by date.", "--replace"]


@app.command()
def make(
    place: Place,
    node: NodeArgument = None,
    providers: Annotated[
        list[str] | None,
        "The provider for key exchange: aes, enhanced or base; repeatable. By default, aes and enhanced.",
        "--provider",
        value("NAME"),
    ] = None,
    bits: Annotated[
        int | None, "Key size in bits; by default 2,048, or 512 for base, which supports no more."
    ] = None,
    user: Annotated[
        str | None,
        "Make the key with which this user signs, for mqproto send --certificate NAME.",
        value("NAME"),
    ] = None,
    replace: ReplaceOption = False,
) -> Printout:
    """Make the missing keys of a node: those for key exchange, and one for signatures with a self-signed certificate.

    With --replace, replace all keys, and set the old ones aside. With --user, make or replace only the key with
    which this user signs at the node.
    """
    from mqproto.security import new_key_pair, provider_by_word
    from mqproto.simulator.base.screen import working

    files = _files_of(place, node)
    if user is not None:
        return _make_of_user(place, files, user, bits or 2_048, replace=replace)
    chosen = [provider_by_word(word) for word in providers or USUAL]
    if "base" in {provider.word for provider in chosen} and bits not in (None, MINIMUM_BITS):
        raise UsageError(f"the base provider takes keys of {MINIMUM_BITS} bits alone: leave --bits out")
    made = []
    if replace:
        _see_unnamed(files, *(provider.word for provider in chosen), SIGNING)
    with working("making keys"):
        for provider in chosen:
            if replace or not files.has(provider.word):
                made.append(KeptKeyPair(provider.word, new_key_pair(bits or provider.key_pair_bits)))
        if replace or not files.has(SIGNING):
            pair = new_key_pair(bits or 2_048)
            made.append(KeptKeyPair(SIGNING, pair, certified(pair, files.node)))
    if not made:
        raise UsageError(f"{files.node} has all of these keys: --replace makes new ones")
    return _kept(place, files, made)


def _make_of_user(place: Place, files: KeyFiles, user: str, bits: int, *, replace: bool) -> Printout:
    """Make the key with which a user signs messages."""
    from mqproto.security import new_key_pair
    from mqproto.simulator.base.screen import working

    use = _use_of_user(user)
    if files.has(use) and not replace:
        raise UsageError(f"{user} has a key at {files.node}: --replace makes a new one")
    _see_unnamed(files, use)
    with working("making a key"):
        pair = new_key_pair(bits)
    return _kept(place, files, [KeptKeyPair(use, pair, certified(pair, user))])


@app.command()
def show(place: Place, node: NodeArgument = None) -> Printout:
    """Show which keys a node has. Status 1 if it has none, or if its certificate is not valid today."""
    files = _files_of(place, node)
    kept = list(files.all())
    late = [wrong for one in kept if one.certificate and (wrong := _out_of_date(one.certificate))]
    complaints = [
        f"{files.node}: {wrong}: mqproto keys make {files.node} --replace{files.again}" for wrong in late
    ]
    if not kept:
        complaints.append(f"{files.node} has no keys: mqproto keys make {files.node}{files.again}")
    lines = [_line(files.node, one) for one in kept]
    return Printout(_values(files, kept), lines, FINDING if complaints else DONE, complaints)


@app.command()
def export(
    place: Place,
    node: NodeArgument = None,
    use: UseOption = "aes",
    form: Annotated[
        str,
        "certificate (the default for signing keys), blob (the default for other keys), pem or request.",
        "--as",
        value("FORM"),
    ] = "",
    out: Annotated[Path | None, "The new file to write; by default, text is printed to stdout.", "-o"] = None,
    is_private: Annotated[bool, "Export the private key; needs --out.", "--private"] = False,
) -> int:
    """Write the public half of a key, for those who encrypt for the node or verify its signatures.

    A blob has the CryptoAPI's format: PUBLICKEYBLOB or, with --private, PRIVATEKEYBLOB. Without --out, it is in hex.
    """
    files = _files_of(place, node)
    kept = files.load(_use(use))
    form = form or ("certificate" if kept.certificate and not is_private else "blob")
    if form not in FORMS:
        raise UsageError(f"--as {form}: name {', '.join(FORMS)}")
    if is_private:
        if out is None:
            raise UsageError("a private key is written to no screen: name a new file with --out")
        write_new(out, _private_bytes(kept, form), secret=True)
    elif out is not None:
        write_new(out, _public_bytes(kept, form), secret=False)
    else:
        data = _public_bytes(kept, form)
        print(data.hex() if form == "blob" else data.decode("ascii").rstrip("\n"))
    if out is not None:
        print(f"{out}: {'the private key' if is_private else form} of {files.node}, {use}", file=sys.stderr)
    return DONE


@app.command("import")
def take(
    place: Place,
    node: Annotated[str, ARGUMENT, value("NODE")],
    file: Annotated[Path, ARGUMENT, "An unencrypted PEM file or PRIVATEKEYBLOB."],
    use: UseOption = "aes",
    certificate: Annotated[
        Path | None, "With --use signing: the key's certificate. Not needed if FILE contains it."
    ] = None,
    replace: ReplaceOption = False,
) -> Printout:
    """Give a node a key that was made elsewhere. A key for signatures gets a certificate, self-signed if necessary."""
    from mqproto.security import KeyPair

    files, use = _files_of(place, node), _use(use)
    if certificate is not None and not is_for_signatures(use):
        raise UsageError("--certificate is for a key that signs; key exchange knows none")
    _see_unnamed(files, use)
    if files.has(use) and not replace:
        raise UsageError(f"{files.node} has a key for {use}: --replace sets it aside")
    try:
        data = read_private(file)
        pair = KeyPair.from_bytes(data)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}: name a file that you can read") from None
    except UsageError as error:
        raise UsageError(str(error) if str(file) in str(error) else f"{file}: {error}") from None
    if use == "base" and pair.bits != MINIMUM_BITS:
        raise UsageError(
            f"{file}: the base provider takes keys of {MINIMUM_BITS} bits alone, and this has {pair.bits}"
        )
    owner = use.removeprefix(OF_USER) if use != SIGNING else files.node
    shown = _certificate(owner, pair, data, certificate) if is_for_signatures(use) else None
    return _kept(place, files, [KeptKeyPair(use, pair, shown)])


def _files_of(place: Place, node: str | None) -> KeyFiles:
    name = place.topology.node_named(node).name if node else only_node(place)
    named = place.topology.nodes[name].private_keys
    return KeyFiles(keys_path(place.directory, name), name, named, place.again)


def _use(word: str) -> str:
    from mqproto.security import PROVIDERS

    uses = (*(provider.word for provider in PROVIDERS), SIGNING)
    if word.startswith(OF_USER):
        return _use_of_user(word.removeprefix(OF_USER))
    if word.casefold() not in uses:
        raise UsageError(f"--use {word}: name {', '.join(uses)}, or {OF_USER}NAME")
    return word.casefold()


def _use_of_user(name: str) -> str:
    """Return the use of a user's key, under which the key is kept: `user-NAME`.

    Raises:
        UsageError: the user's name is not valid in a file name.
    """
    if not re.fullmatch(USER_NAME, name) or ASIDE in name or name == SIGNING:
        raise UsageError(f"{name!r} is not a name for a user: take letters, digits, - and _, 64 at most")
    return f"{OF_USER}{name}"


def _see_unnamed(files: KeyFiles, *uses: str) -> None:
    """Check that the topology names none of these keys, which would take precedence over those kept here."""
    for use in uses:
        if use in files.named:
            raise UsageError(f"the topology names the key of {files.node} for {use}: name another there")


def _certificate(node: str, pair: KeyPair, data: bytes, file: Path | None) -> Certificate:
    """Return the certificate from the named file or from the key's own file, or else a self-signed one."""
    from mqproto.security import Certificate

    if file is None and b"BEGIN CERTIFICATE" not in data:
        return certified(pair, node)
    try:
        found = Certificate.from_bytes(data if file is None else file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}: name a file that you can read") from None
    except UsageError as error:
        raise UsageError(f"{file}: {error}" if file else str(error)) from None
    if found.key != pair.public:
        raise UsageError(
            f"{file or 'the certificate beside the key'}: it is not of this key: name the one that is"
        )
    return found


def _kept(place: Place, files: KeyFiles, made: list[KeptKeyPair]) -> Printout:
    """Write keys and their public parts; report which keys were made and which running nodes use them now."""
    from mqproto.simulator.command.peers import ask_each

    aside = keep_all(place.directory, files.node, made, datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))
    told = run_task(partial(ask_each, place, None, lambda client: client.read_keys()))
    public = public_path(place.directory, files.node)
    lines = [
        *(_line(files.node, kept) for kept in made),
        *(f"set aside: {path}" for path in aside),
        f"kept in {files.folder}, for you alone; what others need is in {public}",
    ]
    if running := [name for name, answer in told.items() if answer is True]:
        lines.append(f"{', '.join(running)} {'know' if len(running) > 1 else 'knows'} them from now on")
    complaints = [
        f"{name} goes on with the keys that it had: {answer}"
        for name, answer in told.items()
        if isinstance(answer, UsageError)
    ]
    return Printout(_values(files, made) | {"aside": [*map(str, aside)]}, lines, DONE, complaints)


def _values(files: KeyFiles, kept: Iterable[KeptKeyPair]) -> dict[str, Any]:
    return {"node": files.node, "folder": str(files.folder), "keys": [*map(_value, kept)]}


def _line(node: str, kept: KeptKeyPair) -> str:
    parts = [f"{node}: {kept.use}", f"{kept.pair.bits:,} bits" + ", which anybody can break" * _is_weak(kept)]
    parts.append(kept.pair.public.fingerprint)
    if kept.certificate is not None:
        until = datetime.fromtimestamp(kept.certificate.until_s, UTC).date()
        parts.append(f"certificate of {kept.certificate.subject} until {until}")
    return ", ".join(parts)


def _value(kept: KeptKeyPair) -> dict[str, Any]:
    value: dict[str, Any] = {
        "use": kept.use,
        "bits": kept.pair.bits,
        "weak": _is_weak(kept),
        "fingerprint": kept.pair.public.fingerprint,
        "blob": public_blob(kept).hex(),
    }
    if kept.certificate is not None:
        value["certificate"] = {
            "subject": kept.certificate.subject,
            "since_s": kept.certificate.since_s,
            "until_s": kept.certificate.until_s,
        }
    return value


def _is_weak(kept: KeptKeyPair) -> bool:
    return kept.pair.bits < 1_024


def _out_of_date(certificate: Certificate) -> str:
    """Return why a certificate is not valid today, or an empty string if it is valid."""
    if certificate.since_s <= time.time() <= certificate.until_s:
        return ""
    since, until = (
        datetime.fromtimestamp(second, UTC).date() for second in (certificate.since_s, certificate.until_s)
    )
    return f"the certificate of {certificate.subject} is valid from {since} to {until}"


def _public_bytes(kept: KeptKeyPair, form: str) -> bytes:
    if form == "blob":
        return public_blob(kept)
    if form == "pem":
        return kept.pair.public.pem()
    if kept.certificate is None:
        raise UsageError("only a key for signatures has a certificate: --use signing, or --as pem")
    if form == "request":
        from mqproto.security import request_for

        owner = kept.certificate.subject.removeprefix("CN=")
        return request_for(kept.pair, owner)
    return kept.certificate.pem()


def _private_bytes(kept: KeptKeyPair, form: str) -> bytes:
    if form in ("certificate", "request"):
        raise UsageError(f"a {form} has no private key in it: --as pem, or --as blob")
    algorithm = RSA_SIGN if is_for_signatures(kept.use) else RSA_KEY_EXCHANGE
    return kept.pair.blob(algorithm) if form == "blob" else kept.pair.pem()
