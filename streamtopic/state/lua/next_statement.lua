-- Give out the number of a statement. A repetition gives out one more, and the number before stays unused.
-- KEYS: statement.
-- ARGV: a number that it must exceed.
-- Answers the number.

local last = tonumber(redis.call('GET', KEYS[1]) or '0')
local number = math.max(last, tonumber(ARGV[1])) + 1
redis.call('SET', KEYS[1], string.format('%.0f', number))
return number
