-- Give the lease up.
-- KEYS: lease.
-- ARGV: holder.
-- Answers 1, also where the lease is another's by now.

-- Compared and deleted in one step: between two commands the lease could end and be taken by another.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
