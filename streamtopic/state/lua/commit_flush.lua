-- Commit a flush: documents, words, the change that readers follow, deletions, counters and the offset, all or nothing.
-- KEYS: meta, forgets, changes of even and of odd generations; the hashes that change.
-- ARGV: the plan (msgpack), the change, then all values; the plan says which range of arguments goes where.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

-- `unpack` fails beyond some 8,000 values, so long ranges of arguments go in slices. An even number: no field may be
-- parted from its value.
local SLICE = 4000
local function each(command, key, first, last)
  for from = first, last, SLICE do
    redis.call(command, key, unpack(ARGV, from, math.min(from + SLICE - 1, last)))
  end
end

local plan = cmsgpack.unpack(ARGV[1])
local meta = KEYS[1]
local have = redis.call('HMGET', meta, 'commit', 'next', 'fence', 'generation')
-- First of all: behind its own commit every other check fails, and a repetition would be Stale.
if have[1] == plan.commit then return {'already'} end
if not have[3] then return {'stale', 'the state is gone'} end
if have[3] ~= plan.fence then return {'stale', 'another writer took the partition over'} end
if have[2] ~= plan.next then return {'stale', 'the offset has moved'} end
-- After Redis was set back, offsets may count up to the same numbers again; the id of a change cannot.
if have[1] ~= plan.base then return {'stale', 'the state has another history'} end
-- Written again, they would look whole. The writer reads the state anew, and its error names what is lost.
if redis.call('EXISTS', KEYS[2]) == 0 then
  return {'stale', 'keys of the partition are lost'}
end
for _, step in ipairs(plan.steps) do each(step[1], KEYS[step[2]], step[3], step[4]) end
for _, entry in ipairs(plan.entries) do redis.call('XADD', KEYS[2], ARGV[entry], 'forget', ARGV[entry + 1]) end
for field, by in pairs(plan.increments) do redis.call('HINCRBY', meta, field, by) end
local version = redis.call('HINCRBY', meta, 'version', 1)
redis.call('HSET', KEYS[3 + have[4] % 2], version, ARGV[2])
-- With what Redis itself takes for an entry.
redis.call('HINCRBY', meta, 'unsummed', #ARGV[2] + 100)
-- Redis's clock: times of several processes would not be comparable.
local clock = redis.call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
redis.call('HSET', meta, 'commit', plan.commit, 'next', plan.to, 'time', plan.time, 'last', plan.last,
           'next_word', plan.next_word, 'words', plan.words, 'moved', now)
if #plan.entries > 0 then
  redis.call('HSET', meta, 'removed', plan.to)
  redis.call('HINCRBY', meta, 'removals', #plan.entries)
end
return {'applied'}
