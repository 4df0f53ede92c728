-- Read some hashes of documents, and the moment of the partition.
-- KEYS: meta, the hashes.
-- ARGV: '1' to have the ids as well.
-- Answers {facts, all records one after the other, their lengths (msgpack), ids (msgpack) or ''}.

local facts = redis.call('HGET', KEYS[1], 'facts') or ''
local parts, sizes, ids = {}, {}, {}
for k = 2, #KEYS do
  -- Nothing comes between both reads, so records and ids have one order.
  local records = redis.call('HVALS', KEYS[k])
  for _, record in ipairs(records) do sizes[#sizes + 1] = #record end
  parts[#parts + 1] = table.concat(records)
  if ARGV[1] == '1' then
    for _, id in ipairs(redis.call('HKEYS', KEYS[k])) do ids[#ids + 1] = id end
  end
end
return {facts, table.concat(parts), cmsgpack.pack(sizes), ARGV[1] == '1' and cmsgpack.pack(ids) or ''}
