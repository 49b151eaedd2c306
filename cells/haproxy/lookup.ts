/** The part of HAProxy's configuration that asks the cells for an id which no map knows. It is written in Lua. */
import type { CellsConfig } from '../config.ts';

/** Its name in the directory of `haproxy.cfg`. */
export const lookupFile = 'lookup.lua';

/** Which id is looked up: its variable `id`, `slot` and `lookup` are in the scope that the rule names. */
export const lookupAction = 'lua.slipway_lookup';

/** The content of `lookup.lua`. `socket` is where HAProxy passes questions on to the cells. */
export function lookupScript({ cells }: Pick<CellsConfig, 'cells'>, socket: string): string {
  const names = [...cells.keys()].map((name) => `"${name}"`).join(', ');
  return `-- Written by \`slipway cells write\`.
-- Asks the cells which account an id belongs to, for ids that do not carry the digits of their account.
local socket = "${socket}"
local cells = { ${names} }
-- Without it the cells would not answer.
local has_token = (os.getenv("SLIPWAY_METRICS_TOKEN") or "") ~= ""
${rules}`;
}

const rules = `
-- Seconds that an answer is kept, and that a cell may take to give one.
local life, patience = 30, 4
-- Answers that are kept twice.
local most_kept = 50000
-- Ids that are asked for at a time, and that wait for it: in all, and for one address.
local most_asked, most_waiting = { 256, 16 }, { 2048, 256 }
-- Ids that are asked for, for one address in five seconds. Those that a cell knows count too: otherwise the limit would tell
-- which they are.
local most_in_time, time_of_most = 200, 5

-- What is kept for a time between \`seconds\` and twice as long, and at most \`most\` twice.
local function memory(seconds, most)
  local young, old, count, since = {}, {}, 0, 0
  local function turn()
    local now = core.now().sec
    if now - since < seconds and count < most then return end
    old = now - since < 2 * seconds and young or {}
    young, count, since = {}, 0, now
  end
  return {
    get = function(key)
      turn()
      local value = young[key]
      if value == nil then value = old[key] end
      return value
    end,
    set = function(key, value)
      turn()
      if young[key] == nil then count = count + 1 end
      young[key] = value
    end,
  }
end

local known = memory(life, most_kept)
local recent, recent_since = {}, 0
local warned = 0

-- Who is at work, in all and for one address. One whose client has gone is never finished, so each has an end.
local function places(most)
  local taken, number, all, of, swept = {}, 0, 0, {}, 0
  local function sweep()
    local now = core.now().sec
    if now == swept then return end
    swept, all, of = now, 0, {}
    for key, one in pairs(taken) do
      if one.ends < now then
        taken[key] = nil
      else
        all, of[one.source] = all + 1, (of[one.source] or 0) + 1
      end
    end
  end
  return {
    -- Nil if there is no place.
    take = function(source, ends)
      sweep()
      if all >= most[1] or (of[source] or 0) >= most[2] then return nil end
      number, all, of[source] = number + 1, all + 1, (of[source] or 0) + 1
      taken[number] = { ends = ends, source = source }
      return number
    end,
    leave = function(key)
      local one = taken[key]
      if not one then return end
      taken[key] = nil
      all, of[one.source] = all - 1, of[one.source] - 1
    end,
  }
end

local asking, waiting = places(most_asked), places(most_waiting)

-- A place to ask, or nil if none becomes free in time.
local function turn_to_ask(source)
  local ends = core.now().sec + patience
  local number = asking.take(source, ends)
  if number then return number end
  local place = waiting.take(source, ends)
  if not place then return nil end
  local pause = 10
  repeat
    core.msleep(pause)
    pause = math.min(2 * pause, 160)
    number = asking.take(source, core.now().sec + patience)
  until number or core.now().sec > ends
  waiting.leave(place)
  return number
end

-- Asks cells at the same time. Returns the slot, and whether all of them have answered.
local function ask(names, id, ends)
  local open, slot, first, whole = {}, nil, nil, true
  for _, name in ipairs(names) do
    local question = core.tcp()
    question:settimeout(math.max(1, ends - core.now().sec))
    if question:connect(socket) then
      question:send("GET /cell/lookup?id=" .. id .. " HTTP/1.0\\r\\nx-slipway-cell: " .. name .. "\\r\\n\\r\\n")
    end
    open[#open + 1] = question
  end
  for _, question in ipairs(open) do
    local answer = question:receive("*a") or ""
    question:close()
    local found, created = answer:match('^HTTP/1%.%d 200 .*"slot":"(%x%x%x)","created":"([^"]+)"')
    -- The one that was there first: nobody takes over an id by making it again in another cell.
    if found and (first == nil or created < first) then slot, first = found, created end
    if not found and not answer:match('^HTTP/1%.%d 200 .*"slot":null') then whole = false end
  end
  return slot, whole
end

-- The slot of an id, false if no cell knows it, nil if a cell has not answered.
local function find(id, source)
  if core.now().sec - recent_since >= time_of_most then recent, recent_since = {}, core.now().sec end
  if (recent[source] or 0) >= most_in_time then return nil end
  local kept = known.get(id)
  if kept ~= nil then return kept end
  local number = turn_to_ask(source)
  if not number then return nil end
  recent[source] = (recent[source] or 0) + 1
  local ok, slot, whole = pcall(ask, cells, id, core.now().sec + patience)
  asking.leave(number)
  if not ok then return nil end
  if not slot and not whole then
    if core.now().sec - warned >= 60 then
      warned = core.now().sec
      core.Warning("slipway: not every cell answers where an id is. Do all have this SLIPWAY_METRICS_TOKEN?")
    end
    return nil
  end
  -- A cell that has not answered may be the one that had the id first.
  if whole then known.set(id, slot or false) end
  return slot or false
end

core.register_action("slipway_lookup", { "tcp-req", "http-req" }, function(txn, scope)
  if not has_token then return end
  local id = txn:get_var(scope .. ".id"):lower()
  -- The regular expressions of HAProxy allow a line feed at the end.
  if #id ~= 36 then return end
  -- It stays so if the time is over before there is an answer.
  txn:set_var(scope .. ".lookup", "busy")
  local slot = find(id, txn.c:ipmask(txn.f:src(), 32, 64))
  if slot then txn:set_var(scope .. ".slot", slot) end
  if slot ~= nil then txn:set_var(scope .. ".lookup", "done") end
end, 1)
`;
