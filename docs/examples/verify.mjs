// Verifies a receipt or a release of streamtopic with Node.js alone, offline: no package, no log, no service.
//
//   node verify.mjs receipt FILE.tlog-proof KEY [--document ID] [--request ID] [--salt SALT]
//   node verify.mjs release FILE KEY         its proof is FILE.tlog-proof, its words are in words.txt if that is there
//
// KEY is the public key of the ledger, as signing.pub holds it: a text name+hash+base64, or a file of it. You must have
// got it from somebody you trust. Formats: c2sp.org/signed-note, tlog-checkpoint, tlog-proof; trees as in RFC 6962.
// The status is 0 if all of it verifies and 1 if it does not.

import { createHash, createHmac, createPublicKey, verify as verifySignature } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts)).digest();

/** Throws an error with this message unless a condition holds. */
function check(condition, message) {
  if (!condition) throw new Error(message);
}

/** Returns the bytes of a text in base64, which have this one spelling. */
function decoded(text) {
  const data = Buffer.from(text, "base64");
  check(text !== "" && data.toString("base64") === text, "a text in base64 is malformed");
  return data;
}

/** Returns a whole number of a text that has this one spelling. */
function number(text) {
  check(/^(0|[1-9][0-9]{0,14})$/.test(text), `${text.slice(0, 20)} is not a number`);
  return Number(text);
}

/** Returns name, hash and public key in a text name+hash+base64. */
export function readKey(text) {
  const parts = /^([^+\s]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(text.trim());
  check(parts, "the key is not in the form name+hash+base64");
  const [, name, hash, encoded] = parts;
  const typed = decoded(encoded);
  check(typed.length === 33 && typed[0] === 1, "the key is not one of Ed25519");
  const expected = sha256(Buffer.from(`${name}\n`), typed).toString("hex", 0, 4);
  check(hash === expected, "name, hash and key do not fit each other");
  const x = typed.subarray(1).toString("base64url");
  return { name, hash, key: createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" }) };
}

/** Returns the text of a signed note. Throws unless `key` (of readKey) has signed it. */
export function openNote(note, key) {
  const end = note.lastIndexOf("\n\n");
  check(end > 0 && note.endsWith("\n"), "this is not a signed note");
  const text = note.slice(0, end + 1);
  let found = false;
  for (const line of note.slice(end + 2, -1).split("\n")) {
    const parts = /^— (\S+) (\S+)$/.exec(line);
    check(parts, "a line of a signature is malformed");
    const data = decoded(parts[2]);
    // Other keys, such as those of witnesses, may have signed as well.
    if (parts[1] !== key.name || data.toString("hex", 0, 4) !== key.hash) continue;
    const valid = verifySignature(null, Buffer.from(text), key.key, data.subarray(4));
    check(valid, "the signature is not that of the key");
    found = true;
  }
  check(found, `key ${key.name} ${key.hash} has not signed this`);
  return text;
}

/** Returns origin, size and root in a signed checkpoint. */
export function openCheckpoint(note, key) {
  const [origin, size, root, ...rest] = openNote(note, key).split("\n");
  check(rest.length === 1 && rest[0] === "" && origin === key.name, "the checkpoint is not one of this ledger");
  const checkpoint = { origin, size: number(size), root: decoded(root) };
  check(checkpoint.root.length === 32, "the root of a checkpoint has another length");
  return checkpoint;
}

/** Returns the hash of an entry, which is a line of text. */
export const leafHash = (line) => sha256(Buffer.from([0]), Buffer.from(line));

/** Returns the root to which a path leads from the entry at `index` of a tree of `size` entries. */
export function rootOf(leaf, index, size, path) {
  check(index < size, "the entry is not in the tree");
  // Which half of each subtree it lies in, from the root down: the left half has the largest power of two of entries.
  const sides = [];
  for (let low = 0, high = size; high - low > 1; ) {
    let half = 1;
    while (half * 2 < high - low) half *= 2;
    sides.push(index < low + half ? "left" : "right");
    if (index < low + half) high = low + half;
    else low += half;
  }
  check(path.length === sides.length, "the path has another length");
  let hash = leaf;
  for (const other of path) {
    const pair = sides.pop() === "left" ? [hash, other] : [other, hash];
    hash = sha256(Buffer.from([1]), ...pair);
  }
  return hash;
}

/** Returns { index, entry, line, checkpoint } of the text of a .tlog-proof file. Throws unless it verifies. */
export function verifyProof(text, key) {
  const end = text.indexOf("\n\n");
  check(end > 0, "this is not a proof of the ledger");
  const [title, extra, index, ...path] = text.slice(0, end).split("\n");
  check(title === "c2sp.org/tlog-proof@v1", "this is not a proof of the ledger");
  check(extra?.startsWith("extra "), "the proof has no line of its entry");
  check(index?.startsWith("index "), "the proof has no line of its index");
  const checkpoint = openCheckpoint(text.slice(end + 2), key);
  const line = decoded(extra.slice(6)).toString();
  const place = number(index.slice(6));
  const hashes = path.map(decoded);
  check(hashes.every((hash) => hash.length === 32), "a hash of the path has another length");
  const root = rootOf(leafHash(line), place, checkpoint.size, hashes);
  check(root.equals(checkpoint.root), "the entry is not the one in the signed ledger");
  // Numbers above 2^53, which only offsets may reach, lose their last digits here, and not in `line`.
  return { index: place, entry: JSON.parse(line), line, checkpoint };
}

/** Returns the entry of a version. Throws unless these are its bytes. */
export function verifyRelease(bytes, proof, key) {
  const { entry } = verifyProof(proof, key);
  check(entry.kind === "version", "the proof is not that of a version");
  check(sha256(bytes).toString("hex") === entry.release, "the bytes are not those of the version");
  return entry;
}

/** Returns the fields and the arrays, { shape, numbers } each, in the bytes of a version: they are safetensors. */
export function readVersion(bytes) {
  const start = 8 + Number(bytes.readBigUInt64LE(0));
  const { __metadata__: texts, ...arrays } = JSON.parse(bytes.toString("utf8", 8, start));
  for (const array of Object.values(arrays)) {
    const own = Uint8Array.from(bytes.subarray(start + array.data_offsets[0], start + array.data_offsets[1]));
    array.numbers = array.dtype === "F32" ? new Float32Array(own.buffer) : new Float64Array(own.buffer);
  }
  return { fields: JSON.parse(texts.release), arrays };
}

const hmac = (salt, ...parts) => createHmac("sha256", salt).update(Buffer.concat(parts.map(Buffer.from))).digest("hex");

/** Returns how a receipt names a document under the salt that was sent with its deletion. */
export const documentDigest = (salt, model, document) => hmac(salt, `streamtopic document\0${model}\0`, document);

/** Returns how a receipt names a request under the salt that was sent with it. */
export const requestDigest = (salt, request) => hmac(salt, "streamtopic request\0", request);

/** Returns the entry of a receipt. Throws unless it is about the document and the request, where these are given. */
export function verifyReceipt(proof, key, { document, request, salt } = {}) {
  const { index, entry, checkpoint } = verifyProof(proof, key);
  check(entry.kind === "receipt" || entry.kind === "request", "the proof is not that of a receipt");
  const asked = document !== undefined || request !== undefined;
  check(!asked || salt !== undefined, "a document or a request is known by its salt only: give it, too");
  if (document !== undefined) {
    check(entry.document === documentDigest(salt, entry.model, document), "the receipt is about another document");
  }
  if (request !== undefined) {
    check(entry.request === requestDigest(salt, request), "the receipt is that of another request");
  }
  return { index, size: checkpoint.size, entry };
}

function main([what, file, keyOrFile, ...rest]) {
  check(["receipt", "release"].includes(what) && keyOrFile, "usage: verify.mjs receipt|release FILE KEY [--salt SALT]");
  const key = readKey(existsSync(keyOrFile) ? readFileSync(keyOrFile, "utf8") : keyOrFile);
  if (what === "release") {
    const bytes = readFileSync(file);
    const entry = verifyRelease(bytes, readFileSync(`${file}.tlog-proof`, "utf8"), key);
    const words = join(dirname(file), "words.txt");
    const own = readVersion(bytes).fields.words.map((word) => `${word}\n`);
    check(!existsSync(words) || readFileSync(words, "utf8") === own.join(""), "words.txt has other words");
    console.log(`version ${entry.version} of ${entry.model}: ${entry.guarantee}, epsilon ${entry.epsilon}`);
    return;
  }
  const options = {};
  for (let place = 0; place < rest.length; place += 2) {
    check(["--document", "--request", "--salt"].includes(rest[place]), `${rest[place]} is not an option`);
    options[rest[place].slice(2)] = rest[place + 1];
  }
  const { index, size, entry } = verifyReceipt(readFileSync(file, "utf8"), key, options);
  const name = entry.id ?? `${entry.model}/${entry.partition}/${entry.offset}`;
  console.log(`receipt ${name}: entry ${index} of ${size}, deleted from version ${entry.version} on`);
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    main(process.argv.slice(2));
  } catch (error) {
    console.error(`verify.mjs: ${error.message}`);
    process.exitCode = 1;
  }
}
