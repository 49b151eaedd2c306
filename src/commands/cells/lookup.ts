/** The part of HAProxy's configuration that asks the cells for an id which no map knows. It is written in Lua. */
import type { CellsConfig } from './config.js';

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
-- Answers that are kept twice, and ids that are asked for at a time: in all, and for one address.
local most_kept, most_asked, most_of_one = 50000, 256, 16
-- Ids that no cell knows, of one address in 5 to 10 seconds.
local most_unknown = 100

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
local unknown = memory(5, most_kept)
local warned = 0
-- Questions under way: when each ends at the latest, as one whose client has gone is never finished, and for whom it is.
local asking, questions = {}, 0
local function is_busy(now, source)
  local all, own = 0, 0
  for number, question in pairs(asking) do
    if question.ends < now then
      asking[number] = nil
    else
      all = all + 1
      if question.source == source then own = own + 1 end
    end
  end
  return all >= most_asked or own >= most_of_one
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
  local kept = known.get(id)
  if kept ~= nil then return kept end
  local ends = core.now().sec + patience
  while is_busy(core.now().sec, source) do
    if core.now().sec > ends then return nil end
    core.msleep(20)
  end
  local count = unknown.get(source) or 0
  if count >= most_unknown then return nil end
  unknown.set(source, count + 1)
  questions = questions + 1
  local number = questions
  asking[number] = { ends = core.now().sec + patience, source = source }
  local ok, slot, whole = pcall(ask, cells, id, asking[number].ends)
  asking[number] = nil
  if slot then unknown.set(source, math.max(0, (unknown.get(source) or 0) - 1)) end
  if not ok then return nil end
  if not slot and not whole then
    if core.now().sec - warned >= 60 then
      warned = core.now().sec
      core.Warning("slipway: not every cell answers where an id is. Do all have this SLIPWAY_METRICS_TOKEN?")
    end
    return nil
  end
  known.set(id, slot or false)
  return slot or false
end

core.register_action("slipway_lookup", { "tcp-req", "http-req" }, function(txn, scope)
  if not has_token then return end
  -- It stays so if the time is over before there is an answer.
  txn:set_var(scope .. ".lookup", "busy")
  local slot = find(txn:get_var(scope .. ".id"):lower(), txn.c:ipmask(txn.f:src(), 32, 64))
  if slot then txn:set_var(scope .. ".slot", slot) end
  if slot ~= nil then txn:set_var(scope .. ".lookup", "done") end
end, 1)
`;
