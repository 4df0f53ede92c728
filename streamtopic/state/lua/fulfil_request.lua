-- Remove a request that was acted on.
-- KEYS: request.
-- ARGV: its value.
-- Answers 1, also where another request took its place.

-- Values are unique, so a request that came while this one was acted on stays.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
