"""The Lua scripts by which processes lease dollars. Redis knows the sums; the journal knows who was granted what.

Each process says with every exchange what it holds. What Redis counts for it beyond that was granted and never used, because
the answer was lost or the journal could not be written: it returns to the cap at once.
"""

GRANTED, REFUSED, NOT_CURRENT, CLOCK_WENT_BACK, CLOCKS_DIFFER, CLOCK_LEAPT, CAME_LATE = 1, 0, -1, -2, -3, -4, -5
"""What :data:`GRANT` answers."""
CLOCK_BOUND_S = 3600
"""How far clocks may be from each other, and behind the last day of a grant, before nothing is granted."""

_IS_CURRENT = """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local known = redis.call('HMGET', KEYS[1], 'run', 'generation')
local is_current = known[1] == run and known[2] == ARGV[1]
"""

_HELD = """
-- Counts what the process holds of a day as it says, unless a later exchange of it came first: then false.
local function holds(process, sequence, day, tenant, amount)
    local turn = 'turn:' .. process
    if tonumber(redis.call('HGET', KEYS[1], turn) or '0') >= sequence then
        return false
    end
    redis.call('HSET', KEYS[1], turn, sequence)
    local own = 'held:' .. day .. ':' .. #tenant .. ':' .. tenant .. ':' .. process
    local surplus = tonumber(redis.call('HGET', KEYS[1], own) or '0') - amount
    if surplus > 0 then
        redis.call('HINCRBY', KEYS[1], 'day:' .. day .. ':' .. tenant, string.format('%.0f', -surplus))
        redis.call('HINCRBY', KEYS[1], own, string.format('%.0f', -surplus))
    end
    return own
end
"""

GRANT = f"""
-- KEYS: the fleet's money. ARGV: generation, tenant, cap, wanted, processes that share (or
-- 1 / p, if this one may count on the part p), day ('' for the server's), process, its turn, the last day that it holds
-- dollars of, what it holds of that day, its clock in seconds ('' if not to be compared), the last
-- day that it takes for possible ('' if it cannot tell).
-- Amounts in billionths of a dollar. Returns: one of the codes above; the slice; the rest of the cap; the day; the last day.
{_IS_CURRENT}
{_HELD}
local now, day = tonumber(redis.call('TIME')[1]), tonumber(ARGV[6])
if day then
    now = day * 86400
else
    day = math.floor(now / 86400)
end
if not is_current then
    return {{{NOT_CURRENT}, 0, 0, day, 0}}
end
if ARGV[11] ~= '' and math.abs(now - tonumber(ARGV[11])) > {CLOCK_BOUND_S} then
    return {{{CLOCKS_DIFFER}, 0, 0, day, 0}}
end
if ARGV[12] ~= '' and day > tonumber(ARGV[12]) then
    return {{{CLOCK_LEAPT}, 0, 0, day, 0}}
end
-- Days never go back: a clock that is a little behind goes on with the last day.
local last = tonumber(redis.call('HGET', KEYS[1], 'last') or '0')
if last * 86400 - now > {CLOCK_BOUND_S} then
    return {{{CLOCK_WENT_BACK}, 0, 0, day, last}}
end
day = math.max(day, last)
local own = holds(ARGV[7], tonumber(ARGV[8]), day, ARGV[2], tonumber(ARGV[9]) == day and tonumber(ARGV[10]) or 0)
if not own then
    return {{{CAME_LATE}, 0, 0, day, last}}
end
local field = 'day:' .. day .. ':' .. ARGV[2]
local cap, wanted, members = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local rest = cap - tonumber(redis.call('HGET', KEYS[1], field) or '0')
if wanted > rest then
    return {{{REFUSED}, 0, rest, day, last}}
end
local slice = math.max(math.min(math.floor(cap / members), math.floor(rest / (2 * members))), wanted)
redis.call('HINCRBY', KEYS[1], field, string.format('%.0f', slice))
redis.call('HINCRBY', KEYS[1], own, string.format('%.0f', slice))
redis.call('HSET', KEYS[1], 'last', day)
return {{{GRANTED}, slice, rest - slice, day, last}}
"""

GIVE_BACK = f"""
-- KEYS: the fleet's money. ARGV: generation, tenant, day, process, its turn, what it holds of that day.
-- Returns 1, or 0 if this Redis does not know it at all, or has heard later news.
{_IS_CURRENT}
{_HELD}
if not is_current then
    return 0
end
return holds(ARGV[4], tonumber(ARGV[5]), ARGV[3], ARGV[2], tonumber(ARGV[6])) and 1 or 0
"""

RESTORE = """
-- KEYS: the fleet's money. ARGV: generation, the last day of a grant, then process, tenant, day and amount of every grant.
-- Returns 1, or 0 if a later one came first.
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local known = redis.call('HMGET', KEYS[1], 'run', 'generation')
if known[1] == run and tonumber(known[2]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'run', run, 'generation', ARGV[1], 'last', ARGV[2])
for i = 3, #ARGV, 4 do
    local tenant, day, amount = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    redis.call('HINCRBY', KEYS[1], 'day:' .. day .. ':' .. tenant, amount)
    redis.call('HINCRBY', KEYS[1], 'held:' .. day .. ':' .. #tenant .. ':' .. tenant .. ':' .. ARGV[i], amount)
end
return 1
"""
