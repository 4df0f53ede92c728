-- Move a request for deletions to its next state, if it is still in the state that the caller has seen.
-- KEYS: open requests, ended requests, sums; for a scheduler also fence, lease.
-- ARGV: token and holder (empty for a person, who needs no lease), id, facts before, facts after, whether it ends,
--   number of documents.
-- `0 - n`, since a request for subjects names no document and Redis does not take -0.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local open, ended, sums = KEYS[1], KEYS[2], KEYS[3]
local have = redis.call('HGET', open, ARGV[3]) or redis.call('HGET', ended, ARGV[3])
if have == ARGV[5] then return {'already'} end
if have ~= ARGV[4] then return {'stale', 'the request has moved on'} end
if ARGV[1] ~= '' and not leads(KEYS[4], KEYS[5]) then
  return {'stale', 'another scheduler leads, or the lease ended'}
end
if ARGV[6] == '1' then
  redis.call('HDEL', open, ARGV[3])
  redis.call('HSET', ended, ARGV[3], ARGV[5])
  redis.call('HINCRBY', sums, 'documents', 0 - ARGV[7])
else
  redis.call('HSET', open, ARGV[3], ARGV[5])
end
return {'applied'}
