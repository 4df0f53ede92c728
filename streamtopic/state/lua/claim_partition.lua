-- Become the writer of a partition, and create its state where there is none.
-- KEYS: meta, forwards, requests to forget a subject.
-- ARGV: cap of the document mass, partitions, first offset, layout of a new state, partitioner, limits of records,
--   oldest and newest layout that this program writes, its version, a new secret.
-- Answers {'claimed', fencing token, secret of the partition}, or
--   {'differs', layout, cap, partitions, partitioner, limits} as they are stored.

local meta, cap, partitions, partitioner = KEYS[1], ARGV[1], ARGV[2], ARGV[5]
local have = redis.call('HMGET', meta, 'schema', 'cap', 'partitions', 'partitioner', 'limits')
-- A state without a partitioner is older than the setting. One without limits was counted by other rules: it differs.
local hash = have[4] or 'murmur2'
local layout = tonumber(have[1] or ARGV[4])
local readable = layout >= tonumber(ARGV[7]) and layout <= tonumber(ARGV[8])
if have[1] and (not readable or have[2] ~= cap or have[3] ~= partitions or hash ~= partitioner
                or have[5] ~= ARGV[6]) then
  return {'differs', have[1], have[2], have[3], hash, have[5] or ''}
end
if not have[1] then
  -- `through` outlives meta, which a rebuild removes: records before it must not be sent elsewhere again.
  redis.call('HSET', meta, 'schema', ARGV[4], 'cap', cap, 'partitions', partitions, 'next', ARGV[3], 'version', 1,
             'commit', '', 'fence', 0, 'time', 0, 'moved', 0, 'folded', 0, 'cuts', '', 'next_word', 0, 'words', 0,
             'partitioner', partitioner, 'limits', ARGV[6], 'through', redis.call('HGET', KEYS[2], 'through') or 0,
             'removed', 0, 'removed_at', 0, 'erased', 0, 'erased_at', 0, 'program', ARGV[9])
end
-- Drawn once, and kept by a rebuild: digests of subjects are made with it. With the claim, so that a Redis that was set
-- back to before it has fenced this writer out.
redis.call('HSETNX', KEYS[3], 'secret', ARGV[10])
-- A repetition takes the next token: its first one is lost with its answer, and fences nobody out but itself.
return {'claimed', redis.call('HINCRBY', meta, 'fence', 1), redis.call('HGET', KEYS[3], 'secret')}
