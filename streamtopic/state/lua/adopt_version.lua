-- Record a version that stands in the releases topic and not in this Redis.
-- KEYS: fence, releases, ledger, lease.
-- ARGV: token, holder, version, release, ledger entry.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

-- Before the lease is looked at: a repetition is a success for a leader that has lost it meanwhile, too.
local there = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if there and tonumber(string.match(there[1], '^%d+')) >= tonumber(ARGV[3]) then return {'already'} end
if not leads(KEYS[1], KEYS[4]) then return {'stale', 'another scheduler leads, or the lease ended'} end
redis.call('XADD', KEYS[2], ARGV[3] .. '-0', 'release', ARGV[4], 'identity', 'adopted')
redis.call('HSET', KEYS[3], ARGV[3], ARGV[5])
return {'applied'}
