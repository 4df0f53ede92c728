-- Write one field of a model's counts. The last one, `about`, makes them whole.
-- KEYS: fence, counts, lease.
-- ARGV: token, holder, 1 for the first field, which removes the counts of before; name of the field, value.
-- Answers {'applied'} or {'stale', reason}.

if not leads(KEYS[1], KEYS[3]) then return {'stale', 'another scheduler leads, or the lease ended'} end
if ARGV[3] == '1' then redis.call('UNLINK', KEYS[2]) end
redis.call('HSET', KEYS[2], ARGV[4], ARGV[5])
return {'applied'}
