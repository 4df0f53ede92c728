-- Put a partition's deletions aside, unless some are already, and take the partition from its writer.
-- KEYS: forgets, kept forgets, meta, secret of subjects.
-- ARGV: 1 where records will belong to other partitions than before, so that each is looked at again; else 0.
-- Answers how many keys of meta were removed.

-- A removal that is repeated finds entries of the new counting, which know less than those put aside: these stay.
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('RENAME', KEYS[1], KEYS[2])
end
redis.call('DEL', KEYS[1])
lasting(KEYS[2])
if ARGV[1] == '1' then
  redis.call('HDEL', KEYS[4], 'through')
else
  -- It only grows: a removal that was broken off and repeated finds `next` where the new counting began.
  local after = tonumber(redis.call('HGET', KEYS[3], 'next') or '0')
  local through = tonumber(redis.call('HGET', KEYS[4], 'through') or '0')
  if after > through then redis.call('HSET', KEYS[4], 'through', string.format('%.0f', after)) end
end
-- Without meta the writer's next commit is Stale, so nothing is written between the removals that follow.
return redis.call('DEL', KEYS[3])
