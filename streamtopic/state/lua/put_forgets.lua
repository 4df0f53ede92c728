-- Put the deletions that were written aside in the place of those that are there.
-- KEYS: forgets, kept forgets, written.
-- ARGV: none.
-- Answers 1.

redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('RENAME', KEYS[3], KEYS[1]) end
redis.call('DEL', KEYS[2])
return 1
