-- Take a request for deletions in, once.
-- KEYS: open requests, ended requests, sums.
-- ARGV: id, facts, number of documents, most requests, most documents.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local open, ended, sums = KEYS[1], KEYS[2], KEYS[3]
if redis.call('HGET', open, ARGV[1]) then return {'already'} end
if redis.call('HGET', ended, ARGV[1]) then return {'stale', 'ended'} end
local sum = tonumber(redis.call('HGET', sums, 'documents') or '0')
if redis.call('HLEN', open) >= tonumber(ARGV[4]) or sum + tonumber(ARGV[3]) > tonumber(ARGV[5]) then
  return {'stale', 'full'}
end
redis.call('HINCRBY', sums, 'documents', ARGV[3])
redis.call('HSET', open, ARGV[1], ARGV[2])
return {'applied'}
