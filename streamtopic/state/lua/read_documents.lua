-- Read the records of documents, in the order asked, until they hold so many bytes.
-- KEYS: meta, the hashes of documents.
-- ARGV: bytes; for each document the place of its hash among the keys, one byte each; the documents (msgpack).
-- Answers facts and fence of the partition, how many documents were looked for, and for each live one its place and its
-- record (msgpack).

local have = redis.call('HMGET', KEYS[1], 'facts', 'fence')
local documents = cmsgpack.unpack(ARGV[3])
local room, places, found, n, looked = tonumber(ARGV[1]), ARGV[2], {}, 0, #documents
for i = 1, looked do
  local record = redis.call('HGET', KEYS[string.byte(places, i)], documents[i])
  if record then
    found[n + 1], found[n + 2], n = i - 1, record, n + 2
    room = room - #record
    -- Past the limit, not up to it: the first document is always read, however large, so that the caller gets on.
    if room <= 0 then
      looked = i
      break
    end
  end
end
-- cmsgpack packs an empty table as a map: 144 is msgpack's empty array.
return {have[1], have[2], looked, n == 0 and string.char(144) or cmsgpack.pack(found)}
