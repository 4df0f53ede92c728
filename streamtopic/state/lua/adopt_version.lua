-- Record a version as the ledger has it, in the place of another one that was staged under its number.
-- KEYS: fence, releases, lease; then the base model and its parts, if it came with the one that goes.
-- ARGV: token, holder, version, digest of its bytes, release.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

-- Before the lease is looked at: a repetition is a success for a leader that has lost it meanwhile, too.
local there = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
local version, last, part = tonumber(ARGV[3]), 0, 0
if there then
  last, part = string.match(there[1], '^(%d+)-(%d+)$')
  last, part = tonumber(last), tonumber(part)
  if last > version or (last == version and there[2][4] == ARGV[4]) then return {'already'} end
end
if not leads(KEYS[1], KEYS[3]) then return {'stale', 'another scheduler leads, or the lease ended'} end
-- A stream takes ascending ids only.
local id = version .. '-0'
if last == version then
  redis.call('XDEL', KEYS[2], there[1])
  id = version .. '-' .. (part + 1)
end
redis.call('XADD', KEYS[2], id, 'release', ARGV[5], 'identity', ARGV[4])
for i = 4, #KEYS do redis.call('DEL', KEYS[i]) end
return {'applied'}
