"""Strategies for keys in the CryptoAPI's form."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from mqproto.wire import PublicKeyBlob, SimpleBlob
from mqproto.wire.layouts.keyblobs import (
    AES_128,
    AES_192,
    AES_256,
    MAXIMUM_BITS,
    MINIMUM_BITS,
    RC2,
    RC4,
    RSA_KEY_EXCHANGE,
    RSA_SIGN,
)

_U16: Final = st.just(0) | st.integers(0, 0xFFFF)
_SIZES: Final = (MINIMUM_BITS // 8, 128, 256, MAXIMUM_BITS // 8)
# Hypothesis gives up on thousands of drawn bytes, so a large number repeats a few bytes.
_LARGE: Final = st.builds(
    lambda some, size: (some * size)[:size],
    st.binary(min_size=1, max_size=40),
    st.sampled_from(_SIZES) | st.integers(_SIZES[0], 300),
)


def public_key_blobs() -> st.SearchStrategy[PublicKeyBlob]:
    """Return a strategy for a PUBLICKEYBLOB of any size.

    The modulus is any number, so most of the blobs are not valid keys.
    """
    return st.builds(
        PublicKeyBlob,
        reserved=_U16,
        key_algorithm=st.sampled_from([RSA_KEY_EXCHANGE, RSA_SIGN]),
        pub_exp=st.just(65_537) | st.integers(0, 0xFFFFFFFF),
        modulus=_LARGE,
    )


def simple_blobs() -> st.SearchStrategy[SimpleBlob]:
    """Return a strategy for a SIMPLEBLOB of any algorithm, for private keys of any size."""
    return st.builds(
        SimpleBlob,
        reserved=_U16,
        session_key_algorithm=st.sampled_from([AES_128, AES_192, AES_256, RC2, RC4]),
        encrypted_key=_LARGE,
    )
