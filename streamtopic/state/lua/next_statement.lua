-- Give out the number of a statement.
-- KEYS: statement.
-- ARGV: a number that it must exceed.
-- Answers the number.

-- A repetition gives out one more; the number before stays unused, since readers ask only that numbers grow.
local last = tonumber(redis.call('GET', KEYS[1]) or '0')
local number = math.max(last, tonumber(ARGV[1])) + 1
-- Lua writes a number with 14 digits by itself, and a number beyond these as a power of ten.
redis.call('SET', KEYS[1], string.format('%.0f', number))
return number
