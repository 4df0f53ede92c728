-- Commit a version: release record, outbox records and, if given, a new base model.
-- KEYS: fence, releases, outbox, base, lease; then uploaded outbox records, new base parts, old base parts.
-- ARGV: the plan (msgpack), release, base head or nothing.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local plan = cmsgpack.unpack(ARGV[1])
local fence, releases, outbox, base, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local there = redis.call('XREVRANGE', releases, '+', '-', 'COUNT', 1)[1]
local last, identity = 0, ''
if there then
  last = tonumber(string.match(there[1], '^%d+'))
  identity = there[2][4]
end
-- Before the lease is looked at: a repetition is a success for a leader that has lost it meanwhile, too.
if last == plan.version and identity == plan.identity then return {'already'} end
if (redis.call('GET', fence) or '0') ~= plan.token or redis.call('GET', lease) ~= plan.holder then
  return {'stale', 'another scheduler leads, or the lease ended'}
end
if last ~= plan.before then return {'stale', 'version ' .. last .. ' is the last one'} end
local first, parts = 6, 6 + plan.records
-- All are looked at before the first write: Redis does not undo the writes of a script that stops.
for i = first, parts + plan.new - 1 do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {'stale', 'a part expired before it was committed'} end
end
for i = first, parts + plan.new - 1 do redis.call('PERSIST', KEYS[i]) end
redis.call('XADD', releases, plan.version .. '-0', 'release', ARGV[2], 'identity', plan.identity)
for i = first, parts - 1 do redis.call('XADD', outbox, '*', 'key', KEYS[i]) end
if ARGV[3] ~= '' then
  redis.call('HSET', base, 'head', ARGV[3])
  -- Not deleted at once: a reader may have the old head and be fetching these parts.
  for i = parts + plan.new, #KEYS do redis.call('PEXPIRE', KEYS[i], 600000) end
end
return {'applied'}
