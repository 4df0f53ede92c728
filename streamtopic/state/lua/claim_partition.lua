-- Become the writer of a partition, and create its state where there is none.
-- KEYS: meta, forwards, requests to forget a subject, forgets, suppressions; the sorted sets of subjects; words, manifest
--   and the hashes of documents.
-- ARGV: cap of the document mass, partitions, first offset, layout of a new state, partitioner, limits of records,
--   oldest and newest layout that this program writes, its version, a new secret, number of sorted sets.
-- Answers {'claimed', fencing token, secret of the partition}, {'lost', a key that is there without meta}, or
--   {'differs', layout, cap, partitions, partitioner, limits} as they are stored.

local meta, cap, partitions, partitioner = KEYS[1], ARGV[1], ARGV[2], ARGV[5]
local have = redis.call('HMGET', meta, 'schema', 'cap', 'partitions', 'partitioner', 'limits', 'marked')
-- A state without a partitioner is older than the setting. One without limits was counted by other rules: it differs.
local hash = have[4] or 'murmur2'
local layout = tonumber(have[1] or ARGV[4])
local readable = layout >= tonumber(ARGV[7]) and layout <= tonumber(ARGV[8])
if have[1] and (not readable or have[2] ~= cap or have[3] ~= partitions or hash ~= partitioner
                or have[5] ~= ARGV[6]) then
  return {'differs', have[1], have[2], have[3], hash, have[5] or ''}
end
if not have[1] then
  -- Counted anew beside what is left of the state, documents would count twice. A rebuild removes all of these.
  for i = 4, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then return {'lost', KEYS[i]} end
  end
  -- `through` outlives meta, which a rebuild removes: records before it must not be sent elsewhere again.
  redis.call('HSET', meta, 'schema', ARGV[4], 'cap', cap, 'partitions', partitions, 'next', ARGV[3], 'version', 1,
             'commit', '', 'fence', 0, 'time', 0, 'moved', 0, 'folded', 0, 'cuts', '', 'next_word', 0, 'words', 0,
             'partitioner', partitioner, 'limits', ARGV[6], 'through', redis.call('HGET', KEYS[2], 'through') or 0,
             'removed', 0, 'removed_at', 0, 'erased', 0, 'erased_at', 0, 'program', ARGV[9])
end
if not have[6] then
  -- Drawn once, and kept by a rebuild: digests of subjects are made with it. With the claim, so that a Redis that was
  -- set back to before it has fenced this writer out.
  if not redis.call('HGET', KEYS[3], 'secret') then
    -- Requests without the secret were digested with one that is gone: they would find no document and count as done.
    redis.call('DEL', KEYS[3])
    redis.call('HSET', KEYS[3], 'secret', ARGV[10])
  end
  -- Marks, so that a key that is lost can be told from one that has nothing in it (`require_keys` of meta.py).
  redis.call('HSET', KEYS[2], '', '')
  redis.call('HSET', KEYS[5], '', '')
  for i = 6, 5 + ARGV[11] do redis.call('ZADD', KEYS[i], 0, '') end
  lasting(KEYS[4])
  redis.call('HSET', meta, 'marked', redis.sha1hex(redis.call('HGET', KEYS[3], 'secret')))
end
-- A repetition takes the next token: its first one is lost with its answer, and fences nobody out but itself.
return {'claimed', redis.call('HINCRBY', meta, 'fence', 1), redis.call('HGET', KEYS[3], 'secret') or ''}
