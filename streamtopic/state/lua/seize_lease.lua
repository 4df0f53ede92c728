-- Take the scheduler's lease from its holder.
-- KEYS: lease, fence.
-- ARGV: holder, milliseconds.
-- Answers the fencing token.

-- Whoever led before fails at its next write by the token, however long its own lease would have run.
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])
