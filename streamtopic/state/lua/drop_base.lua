-- Remove the bytes of a base model, and keep its head.
-- KEYS: fence, base, lease, parts.
-- ARGV: token, holder, head before, head afterwards.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

local have = redis.call('HGET', KEYS[2], 'head')
if have == ARGV[4] then return {'already'} end
if not leads(KEYS[1], KEYS[3]) then return {'stale', 'another scheduler leads, or the lease ended'} end
-- Another base model may have been staged since the caller read the head; its bytes are needed.
if have ~= ARGV[3] then return {'stale', 'there is another base model'} end
redis.call('HSET', KEYS[2], 'head', ARGV[4])
for i = 4, #KEYS do redis.call('DEL', KEYS[i]) end
return {'applied'}
