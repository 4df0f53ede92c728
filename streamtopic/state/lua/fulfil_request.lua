-- Remove a request that was acted on.
-- KEYS: request.
-- ARGV: its value.
-- Answers 1; nothing happens where another request took its place.

if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
