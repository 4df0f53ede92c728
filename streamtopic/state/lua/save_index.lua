-- Let the index of the ledger follow its topic.
-- KEYS: head, tiles, nodes, then one set of names for each group of numbers.
-- ARGV: the plan (msgpack); then the numbers of each group, one argument each.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local plan = cmsgpack.unpack(ARGV[1])
local offset = redis.call('HGET', KEYS[1], 'offset') or ''
if offset == plan.after then return {'already'} end
-- A Redis that was set back lacks what lies between, and would seem to have it under a newer head.
if offset ~= plan.before then return {'stale', 'the index has moved to ' .. offset} end
for _, place in ipairs(plan.places) do redis.call('SETRANGE', KEYS[2], place[1], place[2]) end
for _, node in ipairs(plan.nodes) do redis.call('SETRANGE', KEYS[3], node[1], node[2]) end
local at = 2
for group, count in ipairs(plan.counts) do
  for i = at, at + count - 1 do redis.call('SADD', KEYS[3 + group], ARGV[i]) end
  at = at + count
end
redis.call('HSET', KEYS[1], 'dump', plan.dump, 'offset', plan.after)
return {'applied'}
