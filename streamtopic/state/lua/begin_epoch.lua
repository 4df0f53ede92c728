-- Begin all epochs up to the given one at the next offset, and fold those up to that of the base model into one.
-- KEYS: meta, changes of even and of odd generations.
-- ARGV: epoch, fencing token of the leading scheduler, epoch of the base model or -1.
-- Answers {'applied', fields of meta} or {'stale', reason}.

local meta, epoch, leader, base = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local have = redis.call('HMGET', meta, 'next', 'folded', 'cuts', 'leader', 'commit', 'generation')
if not have[1] then return {'stale', 'the state is gone'} end
-- The fence of the lease has another hash tag, so in a Redis Cluster no script sees both: meta keeps its own.
if leader < tonumber(have[4] or '0') then return {'stale', 'another scheduler leads'} end
local folded, cuts = tonumber(have[2]), {}
for offset in string.gmatch(have[3], '%d+') do table.insert(cuts, offset) end
if folded + #cuts >= epoch then return {'stale', 'the epoch has begun already'} end
while folded + #cuts < epoch do table.insert(cuts, have[1]) end
-- No model goes back before the base model, so the epochs before its own need no counters of their own.
for old = folded, base - 1 do
  for _, name in ipairs({'live:', 'counted:'}) do
    redis.call('HINCRBY', meta, name .. base, redis.call('HGET', meta, name .. old) or 0)
    redis.call('HDEL', meta, name .. old)
  end
  table.remove(cuts, 1)
  folded = old + 1
end
-- With a new id and version the writer's plan is Stale: its documents are of the epoch before.
local id = redis.sha1hex(have[5] .. ' cut ' .. epoch .. ' ' .. leader)
redis.call('HSET', meta, 'folded', folded, 'cuts', table.concat(cuts, ','), 'leader', leader, 'commit', id)
local version = redis.call('HINCRBY', meta, 'version', 1)
redis.call('HSET', KEYS[2 + have[6] % 2], version, cmsgpack.pack({have[5], id}))
return {'applied', redis.call('HGETALL', meta)}
