"""Bytes that prove where they come from.

pack, unpack     canonical msgpack: the same value gives the same bytes
SigningKey       an Ed25519 key that signs (PublicKey: that verifies)
seal, unseal     parts signed together, as one container
signed_by        a part of one, shown without the rest
new_signing_key  a key pair in two files
"""

from streamtopic.signing.canonical import pack, unpack
from streamtopic.signing.keys import PublicKey, SigningKey, load_secret, new_secret, new_signing_key
from streamtopic.signing.sealed import seal, signed_by, unseal

__all__ = [
    "PublicKey",
    "SigningKey",
    "load_secret",
    "new_secret",
    "new_signing_key",
    "pack",
    "seal",
    "signed_by",
    "unpack",
    "unseal",
]
