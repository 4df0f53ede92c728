"""Lua scripts: every write of a model's global keys. As in `scripts`: check all, then write, and know a repetition."""

__all__ = ["ACQUIRE", "ADOPT", "CREATE", "FULFIL", "RELEASE", "STAGE", "WITHDRAW"]

CREATE = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'schema', ARGV[1], 'cap', ARGV[2], 'partitions', ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'schema', 'cap', 'partitions')
"""
"""Create a model's record unless there is one; answer the one there is. ARGV: schema, cap, partitions."""

ACQUIRE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if holder then return last end
local now = redis.call('TIME')
local token = math.max(last + 1, now[1] * 1000000 + now[2])
redis.call('SET', KEYS[2], string.format('%.0f', token))
return token
"""
"""Take or renew the lease. KEYS: lease, fence. ARGV: holder, milliseconds. Answers the fencing token, 0 for none.

A token is a time in microseconds: after Redis was set back, those of leaders that it has forgotten are still smaller.
"""

RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
"""Give the lease up. KEYS: lease. ARGV: holder."""

STAGE = """
local plan = cmsgpack.unpack(ARGV[1])
local fence, releases, ledger, outbox, base, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local there = redis.call('XREVRANGE', releases, '+', '-', 'COUNT', 1)[1]
local last, identity = 0, ''
if there then
  last = tonumber(string.match(there[1], '^%d+'))
  identity = there[2][4]
end
if last == plan.version and identity == plan.identity then return {'already'} end
if (redis.call('GET', fence) or '0') ~= plan.token or redis.call('GET', lease) ~= plan.holder then
  return {'stale', 'another scheduler leads, or the lease ended'}
end
if last ~= plan.version - 1 then return {'stale', 'version ' .. last .. ' is the last one'} end
local first, parts = 7, 7 + plan.records
for i = first, parts + plan.new - 1 do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {'stale', 'a part expired before it was committed'} end
end
for i = first, parts + plan.new - 1 do redis.call('PERSIST', KEYS[i]) end
redis.call('XADD', releases, plan.version .. '-0', 'release', ARGV[2], 'identity', plan.identity)
redis.call('HSET', ledger, plan.version, ARGV[3])
for i = first, parts - 1 do redis.call('XADD', outbox, '*', 'key', KEYS[i]) end
if ARGV[4] ~= '' then
  redis.call('HSET', base, 'head', ARGV[4])
  for i = parts + plan.new, #KEYS do redis.call('PEXPIRE', KEYS[i], 600000) end
end
return {'applied'}
"""
"""Commit a version. KEYS: fence, releases, ledger, outbox, base, lease, records, new base parts, old base parts.

ARGV: plan, release, ledger entry, base head or nothing.
"""

_LEADS = """
local function leads(fence, lease)
  return (redis.call('GET', fence) or '0') == ARGV[1] and redis.call('GET', lease) == ARGV[2]
end
"""

ADOPT = (
    _LEADS
    + """
local there = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if there and tonumber(string.match(there[1], '^%d+')) >= tonumber(ARGV[3]) then return {'already'} end
if not leads(KEYS[1], KEYS[4]) then return {'stale', 'another scheduler leads, or the lease ended'} end
redis.call('XADD', KEYS[2], ARGV[3] .. '-0', 'release', ARGV[4], 'identity', 'adopted')
redis.call('HSET', KEYS[3], ARGV[3], ARGV[5])
return {'applied'}
"""
)
"""Record a version from the log. KEYS: fence, releases, ledger, lease. ARGV: token, holder, version, both values."""

WITHDRAW = (
    _LEADS
    + """
local records = tonumber(ARGV[3])
if redis.call('SISMEMBER', KEYS[2], ARGV[4]) == 1 then return {'already'} end
if not leads(KEYS[1], KEYS[4]) then return {'stale', 'another scheduler leads, or the lease ended'} end
for i = 5, 4 + records do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {'stale', 'a part expired before it was committed'} end
end
redis.call('SADD', KEYS[2], unpack(ARGV, 4))
for i = 5, 4 + records do
  redis.call('PERSIST', KEYS[i])
  redis.call('XADD', KEYS[3], '*', 'key', KEYS[i])
end
return {'applied'}
"""
)
"""Withdraw versions. KEYS: fence, withdrawn, outbox, lease, records. ARGV: token, holder, record count, versions."""

FULFIL = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
"""Remove a request that was acted on. KEYS: request. ARGV: its value."""
