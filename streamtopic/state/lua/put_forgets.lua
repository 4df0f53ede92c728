-- Put the deletions that were written aside in the place of those that are there.
-- KEYS: forgets, kept forgets, written.
-- ARGV: how many were written.
-- Answers 1.

-- A repetition finds them in their place already, and must not remove them there.
if redis.call('EXISTS', KEYS[3]) == 0 and ARGV[1] ~= '0' then return 1 end
redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[3]) == 1 then redis.call('RENAME', KEYS[3], KEYS[1]) end
lasting(KEYS[1])
-- Last: while these are there, no receipt is issued, since the others may lack facts.
redis.call('DEL', KEYS[2])
return 1
