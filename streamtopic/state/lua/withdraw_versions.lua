-- Mark versions as withdrawn, and put the tombstones that erase them into the outbox.
-- KEYS: fence, withdrawn, outbox, lease, uploaded records.
-- ARGV: token, holder, number of records, versions.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

-- The first version stands for all, since they are added by one command.
local records = tonumber(ARGV[3])
if redis.call('SISMEMBER', KEYS[2], ARGV[4]) == 1 then return {'already'} end
if not leads(KEYS[1], KEYS[4]) then return {'stale', 'another scheduler leads, or the lease ended'} end
-- All are looked at before the first write: Redis does not undo the writes of a script that stops.
for i = 5, 4 + records do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {'stale', 'a part expired before it was committed'} end
end
redis.call('SADD', KEYS[2], unpack(ARGV, 4))
for i = 5, 4 + records do
  redis.call('PERSIST', KEYS[i])
  redis.call('XADD', KEYS[3], '*', 'key', KEYS[i])
end
return {'applied'}
