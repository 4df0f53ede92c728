-- Stage receipts behind the end of their chain.
-- KEYS: chain, outbox, uploaded records.
-- ARGV: sequence and digest of the end that they continue, then of the new end.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local chain, outbox = KEYS[1], KEYS[2]
local have = redis.call('HMGET', chain, 'sequence', 'digest')
local sequence, digest = have[1] or '0', have[2] or ''
if sequence == ARGV[3] and digest == ARGV[4] then return {'already'} end
if sequence ~= ARGV[1] or digest ~= ARGV[2] then return {'stale', 'the chain of receipts ends at ' .. sequence} end
-- All are looked at before the first write: Redis does not undo the writes of a script that stops.
for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {'stale', 'a receipt expired before it was staged'} end
end
for i = 3, #KEYS do
  redis.call('PERSIST', KEYS[i])
  redis.call('XADD', outbox, '*', 'key', KEYS[i])
end
redis.call('HSET', chain, 'sequence', ARGV[3], 'digest', ARGV[4])
return {'applied'}
