-- Change the layout that a partition's writer writes.
-- KEYS: meta, manifest.
-- ARGV: layout, version of this program, 1 where segments may hold rows in that layout, else 0.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local meta = KEYS[1]
local have = redis.call('HMGET', meta, 'schema', 'commit')
if not have[1] then return {'stale', 'the state is gone'} end
if have[1] == ARGV[1] then return {'already'} end
if ARGV[3] == '0' then
  -- A program of that layout knows no entry with a sixth number, and would take it for damage.
  for _, entry in ipairs(redis.call('HVALS', KEYS[2])) do
    local _, signs = string.gsub(entry, ':', '')
    if signs > 4 then return {'stale', 'segments hold rows'} end
  end
end
-- With a new id and version the plan of a running writer is Stale. It reads the position again, and a program that does
-- not know the layout ends there.
local id = redis.sha1hex(have[2] .. ' layout ' .. ARGV[1])
redis.call('HSET', meta, 'schema', ARGV[1], 'program', ARGV[2], 'commit', id)
redis.call('HINCRBY', meta, 'version', 1)
return {'applied'}
