-- Create a model's record where there is none.
-- KEYS: settings.
-- ARGV: format, cap, partitions, partitioner, limits.
-- Answers these five as they are afterwards, in the same order.

-- Of two processes that create a model, one decides; the other compares its settings with the answer.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'schema', ARGV[1], 'cap', ARGV[2], 'partitions', ARGV[3], 'partitioner', ARGV[4],
             'limits', ARGV[5])
end
return redis.call('HMGET', KEYS[1], 'schema', 'cap', 'partitions', 'partitioner', 'limits')
