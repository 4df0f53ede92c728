-- Write the word statistics of this moment, and begin a generation of changes: that before the last is removed.
-- KEYS: meta, statistics, changes of even and of odd generations.
-- ARGV: fencing token of the writer, last change, present generation, statistics.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local meta = KEYS[1]
local have = redis.call('HMGET', meta, 'fence', 'commit', 'version', 'next', 'generation', 'summed_next')
if not have[1] then return {'stale', 'the state is gone'} end
if have[1] ~= ARGV[1] then return {'stale', 'another writer took the partition over'} end
if have[2] ~= ARGV[2] then return {'stale', 'the state has another history'} end
-- A repetition after a lost answer would remove changes that readers have had no time to take up.
if have[5] ~= ARGV[3] then return {'already'} end
redis.call('SET', KEYS[2], ARGV[4])
local generation = have[5] + 1
redis.call('UNLINK', KEYS[3 + generation % 2])
local clock = redis.call('TIME')
redis.call('HSET', meta, 'generation', string.format('%.0f', generation), 'trimmed', have[6], 'summed', have[3],
           'summed_next', have[4], 'unsummed', 0, 'summed_at',
           clock[1] .. string.format('%03d', math.floor(clock[2] / 1000)))
return {'applied'}
