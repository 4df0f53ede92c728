-- Commit a flush: documents, words, segments, deletions, counters and the offset, all or nothing.
-- KEYS: meta, forgets, suppressions, the hashes that change; from plan.chunks on, the uploaded strings of the new segments.
-- ARGV: the plan (msgpack), then all values; the plan says which range of arguments goes where.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local plan = cmsgpack.unpack(ARGV[1])
local meta = KEYS[1]
local have = redis.call('HMGET', meta, 'commit', 'next', 'version', 'fence', 'marked')
-- First of all: behind its own commit every other check fails, and a repetition would be Stale.
if have[1] == plan.commit then return {'already'} end
if not have[4] then return {'stale', 'the state is gone'} end
if have[4] ~= plan.fence then return {'stale', 'another writer took the partition over'} end
if have[2] ~= plan.next then return {'stale', 'the offset has moved'} end
if have[3] ~= plan.version then return {'stale', 'the manifest has changed'} end
-- After Redis was set back, offset and version may count up to the same numbers again; the id of a change cannot.
if have[1] ~= plan.base then return {'stale', 'the state has another history'} end
-- Written again, they would look whole. The writer reads the state anew, and its error names what is lost.
if have[5] and (redis.call('EXISTS', KEYS[2]) == 0 or not redis.call('HGET', KEYS[3], '')) then
  return {'stale', 'keys of the partition are lost'}
end
if not uploaded(plan.chunks, #KEYS) then return {'stale', 'a segment expired before it was committed'} end
keep(plan.chunks, #KEYS)
for _, step in ipairs(plan.steps) do each(step[1], KEYS[step[2]], step[3], step[4]) end
for _, entry in ipairs(plan.entries) do redis.call('XADD', KEYS[2], ARGV[entry], 'forget', ARGV[entry + 1]) end
for field, by in pairs(plan.increments) do redis.call('HINCRBY', meta, field, by) end
redis.call('HINCRBY', meta, 'version', 1)
-- Redis's clock: times of several processes would not be comparable.
local clock = redis.call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
redis.call('HSET', meta, 'commit', plan.commit, 'next', plan.to, 'time', plan.time, 'next_word', plan.next_word,
           'words', plan.words, 'moved', now)
if #plan.entries > 0 then
  local mark = redis.call('HMGET', meta, 'removed', 'erased')
  local erased = tonumber(mark[2] or '0')
  -- A missed deletion may be committed without a record. It then counts as before the next record, since marks may have
  -- come as far as the last one.
  local removed = tonumber(plan.to)
  if plan.to == plan.next then removed = removed + 1 end
  -- Where nothing deleted was left in segments, this is the oldest deletion that is.
  if tonumber(mark[1] or plan.next) <= erased then redis.call('HSET', meta, 'removed_at', now) end
  -- A missed deletion has the offset before plan.to, and a mark beyond it would say that its traces are gone.
  if erased >= tonumber(plan.to) then redis.call('HSET', meta, 'erased', plan.to - 1) end
  redis.call('HSET', meta, 'removed', string.format('%.0f', removed))
  redis.call('HINCRBY', meta, 'removals', #plan.entries)
end
return {'applied'}
