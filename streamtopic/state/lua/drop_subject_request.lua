-- Remove a request to forget a subject that is done.
-- KEYS: requests of the partition.
-- ARGV: name of the request, its value.
-- Answers 1, also where the request has changed.

-- The same request may have been sent again meanwhile: it is open then, and has another value.
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 1
