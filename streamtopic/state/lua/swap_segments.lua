-- Put merged segments in the place of those that they were made of, or fold epochs into one.
-- KEYS: meta, manifest, strings of the new segments; from plan.old on, strings that are replaced now;
--   from plan.early on, strings that were replaced before and are to go sooner.
-- ARGV: the plan (msgpack), names to remove from the manifest, fields to put there.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local plan = cmsgpack.unpack(ARGV[1])
local meta, manifest = KEYS[1], KEYS[2]
local have = redis.call('HMGET', meta, 'commit', 'version', 'fence', 'folded', 'cuts')
if have[1] == plan.commit then return {'already'} end
if not have[3] then return {'stale', 'the state is gone'} end
if have[3] ~= plan.fence then return {'stale', 'another writer took the partition over'} end
if have[2] ~= plan.version then return {'stale', 'the manifest has changed'} end
-- After Redis was set back, versions may count up to the same numbers again; the id of a change cannot.
if have[1] ~= plan.base then return {'stale', 'the state has another history'} end
if not uploaded(plan.chunks, plan.old - 1) then return {'stale', 'a segment expired before it was committed'} end
keep(plan.chunks, plan.old - 1)
each('HDEL', manifest, plan.gone[1], plan.gone[2])
each('HSET', manifest, plan.put[1], plan.put[2])
-- A reader that took its manifest before still reads the replaced strings, so these end later, and not at once.
for i = plan.old, plan.early - 1 do redis.call('PEXPIRE', KEYS[i], plan.grace) end
for i = plan.early, #KEYS do redis.call('PEXPIRE', KEYS[i], plan.short) end
if plan.folded then
  redis.call('HSET', meta, 'folded', plan.folded, 'cuts', plan.cuts)
  for _, name in ipairs({'live:', 'counted:'}) do
    local sum = 0
    for epoch = tonumber(have[4]), plan.folded do
      sum = sum + tonumber(redis.call('HGET', meta, name .. epoch) or '0')
      redis.call('HDEL', meta, name .. epoch)
    end
    redis.call('HSET', meta, name .. plan.folded, sum)
  end
end
redis.call('HINCRBY', meta, 'version', 1)
redis.call('HSET', meta, 'commit', plan.commit)
return {'applied'}
