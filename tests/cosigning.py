"""Cosignatures of witnesses, made by hand (c2sp.org/tlog-cosignature)."""

from streamtopic.signed import COSIGNATURE, PublicKey, SigningKey
from streamtopic.signed.signing_keys import key_hash, signature_line

SECONDS = 1_700_000_000


def witness(number=1, name="witness.example/w1"):
    """The key of a witness, and what others know of it."""
    key = SigningKey.from_seed(bytes([number]) * 32, name)
    return key, PublicKey(name, key.public.raw, COSIGNATURE)


def cosignature(key, text, *, name=None, seconds=SECONDS, said=None, kind=b"\x04"):
    """The line by which a witness cosigns a checkpoint's text. said: the time that it signs."""
    name = name or key.name
    message = f"cosignature/v1\ntime {seconds if said is None else said}\n{text}".encode()
    signature = seconds.to_bytes(8) + key.sign(message)
    return signature_line(name, key_hash(name, kind + key.public.raw), signature)
