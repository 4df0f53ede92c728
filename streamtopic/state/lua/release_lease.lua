-- Give the lease up.
-- KEYS: lease.
-- ARGV: holder.
-- Answers 1; nothing happens where the lease is another's by now.

if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
