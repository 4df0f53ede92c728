"""Lua scripts: every write of a partition's state.

Each checks everything before its first write, knows its own repetition, and answers a word that `outcomes` turns into
a value. Values to write are plain arguments; the first argument says, as msgpack, which of them go where: ranges of
arguments are passed on as they are, without building tables.

A plan names the change that it is based on. Offsets, versions and tokens can coincide after Redis was restored from an
older snapshot and moved on; the id of the last change cannot.
"""

__all__ = ["CLAIM", "COMMIT", "CUT", "SWAP"]

_APPLY = """
local SLICE = 4000
local function each(command, key, first, last)
  for from = first, last, SLICE do
    redis.call(command, key, unpack(ARGV, from, math.min(from + SLICE - 1, last)))
  end
end
local function uploaded(first, last)
  for i = first, last do
    if redis.call('PTTL', KEYS[i]) <= 0 then return false end
  end
  return true
end
local function keep(first, last)
  for i = first, last do redis.call('PERSIST', KEYS[i]) end
end
"""

CLAIM = """
local meta, cap, partitions = KEYS[1], ARGV[1], ARGV[2]
local have = redis.call('HMGET', meta, 'schema', 'cap', 'partitions')
if have[1] and (have[1] ~= ARGV[4] or have[2] ~= cap or have[3] ~= partitions) then
  return {'differs', have[1], have[2], have[3]}
end
if not have[1] then
  redis.call('HSET', meta, 'schema', ARGV[4], 'cap', cap, 'partitions', partitions, 'next', ARGV[3], 'version', 1,
             'commit', '', 'fence', 0, 'time', 0, 'moved', 0, 'folded', 0, 'cuts', '', 'next_word', 0, 'words', 0)
end
return {'claimed', redis.call('HINCRBY', meta, 'fence', 1)}
"""
"""Become the writer of a partition, creating it. KEYS: meta. ARGV: cap, partitions, first offset, schema."""

COMMIT = (
    _APPLY
    + """
local plan = cmsgpack.unpack(ARGV[1])
local meta = KEYS[1]
local have = redis.call('HMGET', meta, 'commit', 'next', 'version', 'fence')
if have[1] == plan.commit then return {'already'} end
if not have[4] then return {'stale', 'the state is gone'} end
if have[4] ~= plan.fence then return {'stale', 'another writer took the partition over'} end
if have[2] ~= plan.next then return {'stale', 'the offset has moved'} end
if have[3] ~= plan.version then return {'stale', 'the manifest has changed'} end
if have[1] ~= plan.base then return {'stale', 'the state has another history'} end
if not uploaded(plan.chunks, #KEYS) then return {'stale', 'a segment expired before it was committed'} end
keep(plan.chunks, #KEYS)
for _, step in ipairs(plan.steps) do each(step[1], KEYS[step[2]], step[3], step[4]) end
for _, entry in ipairs(plan.entries) do redis.call('XADD', KEYS[2], ARGV[entry], 'forget', ARGV[entry + 1]) end
for field, by in pairs(plan.increments) do redis.call('HINCRBY', meta, field, by) end
redis.call('HINCRBY', meta, 'version', 1)
local clock = redis.call('TIME')
redis.call('HSET', meta, 'commit', plan.commit, 'next', plan.to, 'time', plan.time, 'next_word', plan.next_word,
           'words', plan.words, 'moved', clock[1] .. string.format('%03d', math.floor(clock[2] / 1000)))
return {'applied'}
"""
)
"""Commit a flush. KEYS: meta, forgets, the hashes that change, from plan.chunks on the uploaded segment strings."""

CUT = """
local meta, epoch, leader = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local have = redis.call('HMGET', meta, 'next', 'folded', 'cuts', 'leader', 'commit')
if not have[1] then return {'stale', 'the state is gone'} end
if leader < tonumber(have[4] or '0') then return {'stale', 'another scheduler leads'} end
local _, cuts = string.gsub(have[3], '%d+', '')
local current = tonumber(have[2]) + cuts
if current >= epoch then return {'already'} end
local text = have[3]
for _ = current + 1, epoch do
  if text == '' then text = have[1] else text = text .. ',' .. have[1] end
end
local id = redis.sha1hex(have[5] .. ' cut ' .. epoch .. ' ' .. leader)
redis.call('HSET', meta, 'cuts', text, 'leader', leader, 'commit', id)
redis.call('HINCRBY', meta, 'version', 1)
return {'applied'}
"""
"""Begin an epoch at the next offset. KEYS: meta. ARGV: epoch, the leader's fencing token."""

SWAP = (
    _APPLY
    + """
local plan = cmsgpack.unpack(ARGV[1])
local meta, manifest = KEYS[1], KEYS[2]
local have = redis.call('HMGET', meta, 'commit', 'version', 'fence', 'folded', 'cuts')
if have[1] == plan.commit then return {'already'} end
if not have[3] then return {'stale', 'the state is gone'} end
if have[3] ~= plan.fence then return {'stale', 'another writer took the partition over'} end
if have[2] ~= plan.version then return {'stale', 'the manifest has changed'} end
if have[1] ~= plan.base then return {'stale', 'the state has another history'} end
if not uploaded(plan.chunks, plan.old - 1) then return {'stale', 'a segment expired before it was committed'} end
keep(plan.chunks, plan.old - 1)
each('HDEL', manifest, plan.gone[1], plan.gone[2])
each('HSET', manifest, plan.put[1], plan.put[2])
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
"""
)
"""Put merged segments in place of others. KEYS: meta, manifest, the new strings, from plan.old on the old strings, and
from plan.early on strings that were replaced before and are to go sooner."""
