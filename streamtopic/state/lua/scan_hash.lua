-- Read one slice of a hash as one string.
-- KEYS: the hash.
-- ARGV: cursor, about how many fields.
-- Answers {next cursor, fields and values in turn (msgpack)}.

local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
-- One string, since redis-py takes microseconds for each field that it parses by itself.
-- cmsgpack packs an empty table as a map: 144 is msgpack's empty array.
if #found[2] == 0 then return {found[1], string.char(144)} end
return {found[1], cmsgpack.pack(found[2])}
