-- Begin all epochs up to the given one at the next offset.
-- KEYS: meta.
-- ARGV: epoch, fencing token of the leading scheduler.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local meta, epoch, leader = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local have = redis.call('HMGET', meta, 'next', 'folded', 'cuts', 'leader', 'commit')
if not have[1] then return {'stale', 'the state is gone'} end
-- The fence of the lease has another hash tag, so in a Redis Cluster no script sees both: meta keeps its own.
if leader < tonumber(have[4] or '0') then return {'stale', 'another scheduler leads'} end
local _, cuts = string.gsub(have[3], '%d+', '')
local current = tonumber(have[2]) + cuts
if current >= epoch then return {'already'} end
local text = have[3]
for _ = current + 1, epoch do
  if text == '' then text = have[1] else text = text .. ',' .. have[1] end
end
-- With a new id and version the writer's plan is Stale: its documents are of the epoch before.
local id = redis.sha1hex(have[5] .. ' cut ' .. epoch .. ' ' .. leader)
redis.call('HSET', meta, 'cuts', text, 'leader', leader, 'commit', id)
redis.call('HINCRBY', meta, 'version', 1)
return {'applied'}
