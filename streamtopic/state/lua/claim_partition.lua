-- Become the writer of a partition, and create its state where there is none.
-- KEYS: meta, secret of subjects, forgets; the sorted sets of subjects; statistics, changes and the hashes of documents.
-- ARGV: cap of the document mass, partitions, first offset, format, partitioner, limits of records, a new secret,
--   number of sorted sets, facts of a new state.
-- Answers {'claimed', fencing token, secret of the partition}, {'lost', a key that is there without meta}, or
--   {'differs', format, cap, partitions, partitioner, limits} as they are stored.

local meta, cap, partitions, partitioner = KEYS[1], ARGV[1], ARGV[2], ARGV[5]
local have = redis.call('HMGET', meta, 'schema', 'cap', 'partitions', 'partitioner', 'limits')
if have[1] and (have[1] ~= ARGV[4] or have[2] ~= cap or have[3] ~= partitions or have[4] ~= partitioner
                or have[5] ~= ARGV[6]) then
  return {'differs', have[1], have[2] or '', have[3] or '', have[4] or '', have[5] or ''}
end
if not have[1] then
  -- Counted anew beside what is left of the state, documents would count twice. A rebuild removes all of these.
  for i = 3, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then return {'lost', KEYS[i]} end
  end
  -- `through` outlives meta, which a rebuild removes: deletions before it must not be asked for elsewhere again.
  redis.call('HSET', meta, 'schema', ARGV[4], 'cap', cap, 'partitions', partitions, 'partitioner', partitioner,
             'limits', ARGV[6], 'through', redis.call('HGET', KEYS[2], 'through') or 0, 'version', 1, 'commit', '',
             'fence', 0, 'next', ARGV[3], 'moved', 0, 'summed_at', 0, 'facts', ARGV[9])
  -- Drawn once, and kept by a rebuild: digests of subjects are made with it. With the claim, so that a Redis that was
  -- set back to before it has fenced this writer out.
  if not redis.call('HGET', KEYS[2], 'secret') then
    redis.call('HSET', KEYS[2], 'secret', ARGV[7])
  end
  -- Marks, so that a key that is lost can be told from one that has nothing in it (`require_keys` of meta.py).
  for i = 4, 3 + ARGV[8] do redis.call('ZADD', KEYS[i], 0, '') end
  lasting(KEYS[3])
  redis.call('HSET', meta, 'marked', redis.sha1hex(redis.call('HGET', KEYS[2], 'secret')))
end
-- A repetition takes the next token: its first one is lost with its answer, and fences nobody out but itself.
return {'claimed', redis.call('HINCRBY', meta, 'fence', 1), redis.call('HGET', KEYS[2], 'secret') or ''}
