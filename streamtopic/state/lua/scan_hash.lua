-- Read one slice of a hash as one string: redis-py takes microseconds for each field that it parses by itself.
-- KEYS: the hash.
-- ARGV: cursor, about how many fields.
-- Answers {next cursor, fields and values in turn (msgpack)}. 144 is an array without items, which cmsgpack cannot tell
-- from a map.

local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
if #found[2] == 0 then return {found[1], string.char(144)} end
return {found[1], cmsgpack.pack(found[2])}
