-- Put a partition's deletions aside, unless some are already, and take the partition from its writer.
-- KEYS: forgets, kept forgets, meta, forwards.
-- ARGV: 1 where records will belong to other partitions than before, so that all are looked at again; else 0.
-- Answers how many keys of meta were removed.

if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('RENAME', KEYS[1], KEYS[2])
end
redis.call('DEL', KEYS[1])
if ARGV[1] == '1' then
  redis.call('DEL', KEYS[4])
else
  local after = tonumber(redis.call('HGET', KEYS[3], 'next') or '0')
  local through = tonumber(redis.call('HGET', KEYS[4], 'through') or '0')
  if after > through then redis.call('HSET', KEYS[4], 'through', string.format('%.0f', after)) end
end
return redis.call('DEL', KEYS[3])
