"""Makes docs/examples/ledger_vectors.json, for whoever writes another client: `python tests/wire/ledger_vectors.py`.

Everything in it follows from fixed seeds, so it changes only if the format does.
"""

import base64
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent), str(HERE)]

import numpy as np  # noqa: E402

from cosigning import cosignature, witness  # noqa: E402
from ledger_maker import SALT, LedgerMaker  # noqa: E402
from memory_log import MemoryLog  # noqa: E402
from streamtopic.signed import (  # noqa: E402
    Alive,
    End,
    Erased,
    KeyList,
    Payload,
    RequestReceipt,
    Revoked,
    Runs,
    SigningKey,
    leaf_hash,
    request_digest,
    sign_note,
)
from streamtopic.signed.checkpoints import text_of  # noqa: E402

FILE = HERE.parents[1] / "docs" / "examples" / "ledger_vectors.json"
NAME = "example.org/news"
MADE = 1_764_000_000_000
FIRST, SECOND, ROOT = (SigningKey.from_seed(bytes(range(start, start + 32)), NAME) for start in (0, 32, 64))
NOTE = "A text\n\nof two parts.\n"


def payload(*words):
    """Return a model of two words and one topic, without a drawn number."""
    A, one = np.array([[0.75], [0.25]], np.float32), np.ones((1, 1), np.float32)
    return Payload(words, A, one, np.ones(1), (words,), {"npmi": 0.5}, anchors=words[:1])


def written():
    """Return the maker of a ledger with an entry of each kind, strays, a rotation and a revocation; and a version."""
    maker = LedgerMaker(MemoryLog(), key=FIRST, root=ROOT)
    keys = KeyList(NAME, 1, MADE, FIRST.public)
    maker.list_keys(keys)
    made = maker.publish(1, payload=payload("news", "today"), r=1)
    about = request_digest("r-7", SALT)
    person = RequestReceipt("news/subject/00", "news", about, "", "2025-11", MADE, 1, 1)
    maker.append(maker.receipt(7, "r-7"), maker.receipt(8), person)
    # Somebody else's words, a key that nobody knows, and a writer that came second.
    sleeper = maker.fork().records([maker.receipt(9)])
    maker.send(b"anything", *maker.records([maker.receipt(10)], SigningKey.from_seed(b"x" * 32, NAME)))
    maker.append(
        maker.made(2, payload=payload("new", "today"), r=1, withdrawn=(1,))[1], Alive(MADE, 600_000, 2, Runs((1, 1)))
    )
    maker.send(*sleeper)
    keys = keys.rotated(SECOND.public, MADE + 1)
    maker.list_keys(keys, key=SECOND)
    # A thief has the first key, which is revoked then: what it signed from here on is void.
    stolen = maker.ledger.size
    maker.append(Alive(MADE + 2, 600_000, 2, Runs((1, 2))))
    maker.key = SECOND
    keys = keys.without(Revoked(FIRST.public, stolen, maker.ledger.size, MADE + 3))
    maker.list_keys(keys)
    maker.append(Erased(MADE + 4, {0: 9}, {0: {"log": MADE + 4}}, ("backups",)))
    maker.append(End(MADE + 5, 0, 2, 0, ledger_kept=True))
    return maker, made


def vectors():
    """Return all vectors as JSON holds them; hashes in base64, as texts of the ledger have them."""
    maker, made = written()
    size = maker.ledger.size
    receipt = {"key": str(SECOND.public), "document": "d-7", "request": "r-7", "salt": SALT, "proof": maker.proof(2)}
    data = base64.b64encode(made.data).decode()
    places = (0, 1), (0, size), (5, 7), (6, 7), (size - 1, size)
    grown = (1, 2), (2, 3), (3, 7), (4, 7), (6, 8), (5, size), (8, size)
    return {
        "keys": [{"private": private(key), "public": str(key.public)} for key in (FIRST, SECOND, ROOT)],
        "note": {"key": str(FIRST.public), "text": NOTE, "signed": sign_note(NOTE, FIRST)},
        "key_list": {"key": str(ROOT.public), "signed": maker.ledger.keys.note},
        "entries": [{"line": line, "leaf_hash": text_of(leaf_hash(line.encode()))} for line in maker.lines],
        "roots": [{"size": at, "root": text_of(maker.tree.root(at))} for at in range(size + 1)],
        "inclusion": [inclusion(maker, *place) for place in places],
        "consistency": [growth(maker, *sizes) for sizes in grown],
        "witness": cosigned(maker.ledger.checkpoint),
        "receipt": receipt,
        "release": {
            "key": str(SECOND.public),
            "version": 1,
            "bytes": data,
            "proof": maker.proof(made.index),
            "words": ["news", "today"],
            "A": [0.75, 0.25],
        },
        "ledger": whole(maker),
    }


def private(key):
    """Return a key as its file has it."""
    encoded = base64.b64encode(b"\x01" + key._private.private_bytes_raw()).decode()
    return f"PRIVATE+KEY+{key.name}+{key.public.key_id}+{encoded}"


def inclusion(maker, index, size):
    """Return the proof of an entry in a tree of `size` entries."""
    return {"index": index, "size": size, "path": list(map(text_of, maker.tree.inclusion(index, size)))}


def growth(maker, old, new):
    """Return the proof that a tree begins with an older one."""
    return {"old": old, "new": new, "path": list(map(text_of, maker.tree.consistency(old, new)))}


def cosigned(checkpoint):
    """Return the key of a witness, and a checkpoint that it has cosigned."""
    key, known = witness()
    encoded = base64.b64encode(b"\x04" + known.raw).decode()
    text = checkpoint.rpartition("\n\n")[0] + "\n"
    return {"key": f"{known.name}+{known.hash.hex()}+{encoded}", "signed": checkpoint + cosignature(key, text)}


def whole(maker):
    """Return the records of a topic, and what a reader with the root key knows after them."""
    ledger = maker.ledger
    return {
        "key": str(ROOT.public),
        "records": [value.decode() for value in maker.log.values(maker.names.ledger)],
        "size": ledger.size,
        "root": text_of(ledger.root),
        "strays": 5,
        "void": [index for index in range(ledger.size) if ledger.is_void(index)],
        "newest": ledger.newest,
        "withdrawn": [1],
    }


def text():
    """Return the file."""
    return json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
