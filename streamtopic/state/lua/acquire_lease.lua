-- Take the scheduler's lease, or renew it.
-- KEYS: lease, fence.
-- ARGV: holder, milliseconds, 1 to take it from its holder, else 0.
-- Answers the fencing token, 0 while another holder's lease runs.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and ARGV[3] == '0' then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if holder == ARGV[1] and ARGV[3] == '0' then return last end
-- A token is a time in microseconds: after Redis was set back, the tokens of leaders that it has forgotten are smaller.
-- Whoever led before fails at its next write by the token, however long its own lease would have run.
local now = redis.call('TIME')
local token = math.max(last + 1, now[1] * 1000000 + now[2])
-- Lua writes a number with 14 digits by itself; a token has 16.
redis.call('SET', KEYS[2], string.format('%.0f', token))
return token
