-- Note that all segments before an offset were merged, so that they hold nothing of deleted documents.
-- KEYS: meta.
-- ARGV: fencing token of the writer, last change, offset, milliseconds by Redis's clock when the merge was begun.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local meta = KEYS[1]
local have = redis.call('HMGET', meta, 'fence', 'commit', 'erased')
if not have[1] then return {'stale', 'the state is gone'} end
if have[1] ~= ARGV[1] then return {'stale', 'another writer took the partition over'} end
if have[2] ~= ARGV[2] then return {'stale', 'the state has another history'} end
if tonumber(have[3] or '-1') >= tonumber(ARGV[3]) then return {'already'} end
-- Deletions after the merge was begun may have left traces, so the wait for the next merge counts from its beginning.
local clock = redis.call('TIME')
redis.call('HSET', meta, 'erased', ARGV[3], 'erased_at', clock[1] .. string.format('%03d', math.floor(clock[2] / 1000)),
           'removed_at', ARGV[4])
return {'applied'}
