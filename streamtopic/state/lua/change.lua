-- Write all of some commands, if the state is still as it was when they were planned.
-- KEYS: all keys of the plan.
-- ARGV: the plan (msgpack). `done`: a check; if it holds, the change was made before. `guards`: checks, each {command,
--   value, reason}. `steps`: the commands. A command is {name, number of its key, arguments}.
-- Answers {'applied'}, {'already'} or {'stale', reason}.

-- `unpack` fails beyond some 8,000 values, so long commands go in slices. An even number: no field may be parted from
-- its value.
local SLICE = 4000
local plan = cmsgpack.unpack(ARGV[1])

local function run(command, first, last)
  return redis.call(command[1], KEYS[command[2]], unpack(command, first, last))
end

local function holds(check)
  local answer = run(check[1], 3, #check[1])
  while type(answer) == 'table' do answer = answer[#answer] end
  return (answer and tostring(answer) or '') == check[2]
end

-- First of all: after its own commit every other check fails, and a repetition would be Stale.
if plan.done and holds(plan.done) then return {'already'} end
for _, check in ipairs(plan.guards) do
  if not holds(check) then return {'stale', check[3]} end
end
for _, step in ipairs(plan.steps) do
  for from = 3, math.max(#step, 3), SLICE do run(step, from, math.min(from + SLICE - 1, #step)) end
end
return {'applied'}
