-- Read a hash of documents, and the moment of the partition.
-- KEYS: meta, the hash.
-- ARGV: '1' to have the ids as well.
-- Answers {version, last change, all records one after the other, their lengths (msgpack), ids (msgpack) or ''}.

local at = redis.call('HMGET', KEYS[1], 'version', 'commit')
-- Nothing comes between both reads, so records and ids have one order.
local records = redis.call('HVALS', KEYS[2])
local sizes = {}
for i, record in ipairs(records) do sizes[i] = #record end
local ids = ARGV[1] == '1' and cmsgpack.pack(redis.call('HKEYS', KEYS[2])) or ''
return {at[1] or '0', at[2] or '', table.concat(records), cmsgpack.pack(sizes), ids}
