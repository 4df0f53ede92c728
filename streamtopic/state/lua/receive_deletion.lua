-- Take a request for deletions in, once.
-- KEYS: open requests, ended requests, what the request names, tally, sums.
-- ARGV: id, facts, documents (packed), salt, number of documents, minute, most requests, most documents.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local open, ended, wanted, tally, sums = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if redis.call('HGET', open, ARGV[1]) then
  if redis.call('HGET', wanted, 'documents') == ARGV[3] then return {'already'} end
  return {'stale', 'used'}
end
if redis.call('HGET', ended, ARGV[1]) then return {'stale', 'ended'} end
local sum = tonumber(redis.call('HGET', sums, 'documents') or '0')
if redis.call('HLEN', open) >= tonumber(ARGV[7]) or sum + tonumber(ARGV[5]) > tonumber(ARGV[8]) then
  return {'stale', 'full'}
end
redis.call('HSET', wanted, 'documents', ARGV[3], 'salt', ARGV[4])
redis.call('HINCRBY', sums, 'documents', ARGV[5])
redis.call('HINCRBY', tally, ARGV[6], ARGV[5])
redis.call('HSET', open, ARGV[1], ARGV[2])
return {'applied'}
