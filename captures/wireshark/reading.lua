-- The words that the layouts are written in.
--
-- A reader has one packet's bytes and the place of the next one. A scope is one layout that is being read: the
-- fields by their names, `_` the scope around it, and under names that begin with `_` what is kept of it. A rule
-- that does not hold is noted, and the reading goes on; where no byte can be read any more, the reading ends with
-- the error ENDED. No size is trusted before it has been held against the end of the packet; sums of sizes stay
-- far below 2^53, so nothing wraps.

local floor, format = math.floor, string.format
local ENDED = {}
local MOST_FIELDS = 10000 -- of one packet in the tree: Wireshark gives up on a packet at a million.

local function shift(word, places)
  return floor(word / 2 ^ places)
end

-- These bits of a word, in their place.
local function keep(word, first, width)
  return floor(word / 2 ^ first) % 2 ^ width * 2 ^ first
end

-- Named bits of a word, as a number.
local function part(word, places)
  return keep(shift(word, places[1]), 0, places[2])
end

local function little_endian(data, at, size)
  local total = 0
  for byte = at + size, at + 1, -1 do
    total = total * 256 + data:byte(byte)
  end
  return total
end

-- tree: nil for a reading that only judges.
local function new_reader(tvb, tree, data)
  return {tvb = tvb, tree = tree, data = data, at = 0, stop = #data, seen = 0, shown = 0, faults = {}}
end

-- name, index: of the field that the scope is, in the scope around it.
local function new_scope(reader, around, layout, name, index)
  return {
    _ = around, _reader = reader, _section = layout.section, _name = name, _index = index, _start = reader.at,
    _places = {},
  }
end

-- A field's name in words: "user.destination_queue.count".
local function words_of(this, name)
  if not this._name then return name end
  local own = this._index and format("%s[%d]", this._name, this._index) or this._name
  return words_of(this._, own .. "." .. name)
end

local function spelt(value)
  if type(value) ~= "number" then return value end
  return format(value > 9 and "0x%x" or "%d", value)
end

-- A fault of a field: its place in the scope, its words, what it is, and what it must be.
local function fault(this, place, words, value, limit)
  local faults = this._reader.faults
  faults[#faults + 1] = {
    field = place.name, item = place.item,
    text = format(
      "%s at byte %d is %s, must be %s  %s", words_of(this, words), place.at, spelt(value), limit, this._section
    ),
  }
end

-- Where a field began, or one of a header inside: "base.flags".
local function place_of(this, field)
  local inner, rest = field:match("^([^.]+)%.(.+)$")
  if inner then return place_of(this[inner], rest) end
  return this._places[field]
end

-- A rule does not hold. words: of the part that it is about, such as a few bits of the field.
local function broken(this, field, words, value, limit)
  fault(this, place_of(this, field), words, value, limit)
end

-- The tree shows how far each open layout has come.
local function close(this)
  if this._item then this._item:set_len(this._reader.at - this._start) end
end

-- A field begins here; until it is in the tree, what is said of it stands beside the layout.
local function begin(this, name)
  local place = this._places[name]
  if place then
    place.at, place.size, place.item = this._reader.at, 0, this._item
    return place
  end
  place = {name = name, at = this._reader.at, size = 0, item = this._item}
  this._places[name] = place
  return place
end

-- Nothing after this field can be read.
local function refuse(this, name, value, limit)
  fault(this, this._places[name], name, value, limit)
  local scope = this
  while scope._ do
    close(scope)
    scope = scope._
  end
  error(ENDED, 0)
end

-- The bits that choose how a field is read choose none.
local function no_case(this, name, choice, limit)
  begin(this, name)
  refuse(this, name, choice, limit)
end

-- The next bytes, once it is sure that they are there.
local function take(this, name, size)
  local reader = this._reader
  local left = reader.stop - reader.at
  if size > left then
    refuse(this, name, format("%d bytes", left), format("%d bytes", size))
  end
  local at = reader.at
  reader.at = at + size
  return at
end

-- A size that stands before fits into what PacketSize counts; behind one that lies nothing can be read.
local function fits(this, name, unit, known_as)
  local reader, size = this._reader, this[name] * unit
  local left = math.max(reader.stop, this._.base.packet_size) - reader.at
  if size <= left then return end
  local wraps = size >= 2 ^ 32 and format("in 32 bits 0x%x is %d", size, size % 2 ^ 32) or "it lies"
  local limit = format("at most 0x%x, as %d bytes are left; %s, as in %s", floor(left / unit), left, wraps, known_as)
  refuse(this, name, this[name], limit)
end

local function may_show(reader)
  reader.shown = reader.shown + 1
  return reader.shown <= MOST_FIELDS
end

-- A field in the tree, and each part of a flag word below it.
local function show(this, name, at, size, suffix, value)
  local reader, place = this._reader, this._places[name]
  place.size = size
  if size == 0 then return end
  reader.seen = at + size
  if not this._item or not may_show(reader) then return end
  local path = this._path .. name .. (suffix or "")
  local range = reader.tvb:range(at, size)
  local item
  if value then
    item = this._item:add_le(fields[path], range, value)
  else
    item = this._item:add_le(fields[path], range)
  end
  place.item = item
  for _, bits in ipairs(parts[path] or {}) do
    item:add_le(fields[bits], range)
  end
  if name == "sent_time_s" then
    item:append_text(os.date("! (%Y-%m-%d %H:%M:%S UTC)", this[name]))
  end
end

local function number(this, name, size, suffix)
  begin(this, name)
  local at = take(this, name, size)
  this[name] = little_endian(this._reader.data, at, size)
  show(this, name, at, size, suffix)
end

local function constant(this, name, size, value)
  number(this, name, size)
  if this[name] ~= value then
    broken(this, name, name, this[name], format("0x%x", value))
  end
end

local function octets(this, name, size, suffix)
  begin(this, name)
  show(this, name, take(this, name, size), size, suffix)
end

-- How many bytes a field has that was read.
local function length(this, name)
  return this._places[name].size
end

local function rest(this, name)
  octets(this, name, this._reader.stop - this._reader.at)
end

local function padding(this, name)
  octets(this, name, -this._reader.at % 4)
end

-- Where the first NUL of a UTF-16 text begins, counted in bytes from its start; nil if it has none.
local function find_nul(data, at, size)
  local found = at
  repeat
    found = data:find("\0\0", found + 1, true)
    if not found or found + 1 > at + size then return nil end
  until (found - 1 - at) % 2 == 0
  return found - 1 - at
end

-- A text for a line: no longer than this many bytes of UTF-8, no half characters, nothing that would disturb it.
local function cut_to(text, most)
  if #text > most then text = text:sub(1, most):gsub("[\192-\255][\128-\191]*$", "") .. " ..." end
  return (text:gsub("[%z\1-\31\127]", function (each) return format("\\x%02x", each:byte()) end))
end

local function utf16(reader, at, size)
  return size > 0 and reader.tvb:range(at, size):le_ustring() or ""
end

-- UTF-16 that ends with its only NUL; no bytes at all are not text.
local function text(this, name, size, suffix)
  local reader = this._reader
  begin(this, name)
  local at = take(this, name, size)
  local nul = find_nul(reader.data, at, size)
  local whole = size - size % 2
  if size > 0 then
    this[name] = utf16(reader, at, nul or whole)
  end
  show(this, name, at, size, suffix, this[name])
  if whole > 0 and nul ~= whole - 2 then
    broken(this, name, name, "'" .. cut_to(this[name], 40) .. "'", "text that ends with its only NUL")
  end
end

-- UTF-16 up to its first NUL.
local function terminated(this, name, suffix)
  local reader = this._reader
  local place = begin(this, name)
  local nul = find_nul(reader.data, place.at, reader.stop - place.at)
  if not nul then
    refuse(this, name, format("%d bytes", reader.stop - place.at), "text that ends with a NUL")
  end
  this[name] = utf16(reader, place.at, nul)
  reader.at = place.at + nul + 2
  show(this, name, place.at, nul + 2, suffix, this[name])
end

-- A layout in its own scope. index: among its like, from 0.
local function inside(this, name, layout, index)
  local reader = this._reader
  local place = index and this._places[name] or begin(this, name)
  -- Of thousands of elements that are judged and not shown, one scope will do: each overwrites the fields of the last.
  local scope = index and reader.shown > MOST_FIELDS and this[name]
  if scope then
    scope._index, scope._start, scope._item = index, reader.at, nil
  else
    scope = new_scope(reader, this, layout, name, index)
  end
  this[name] = scope
  if this._item and may_show(reader) then
    scope._path = this._path .. name .. "."
    scope._item = this._item:add(fields[this._path .. name], reader.tvb:range(reader.at, 0))
    if index then scope._item:append_text(format(" [%d]", index)) end
    place.item = scope._item
  end
  layout.read(scope)
  close(scope)
end

-- Bytes that were read, and may hold a layout: its fields below them if they do, and nothing if not.
local function holding(this, name, layout)
  local reader, place = this._reader, this._places[name]
  local judge = new_reader(nil, nil, reader.data)
  judge.at, judge.stop = place.at, place.at + place.size
  local is_whole, why = pcall(layout.read, new_scope(judge, nil, layout))
  if not is_whole and why ~= ENDED then error(why, 0) end
  if not is_whole or #judge.faults > 0 or judge.at < judge.stop then return end
  local at, stop = reader.at, reader.stop
  reader.at, reader.stop = place.at, place.at + place.size
  local scope = new_scope(reader, this, layout, name)
  scope._item, scope._path = this._item and place.item, this._item and this._path .. name .. "."
  layout.read(scope)
  reader.at, reader.stop = at, stop
end

-- A layout that may not look beyond a number of bytes. A size below zero has been refused, and counts for all that is left.
local function window(this, name, size, layout)
  local reader = this._reader
  begin(this, name)
  if size < 0 then size = reader.stop - reader.at end
  local stop = reader.stop
  reader.stop = take(this, name, size) + size
  reader.at = this._places[name].at
  inside(this, name, layout)
  reader.at, reader.stop = reader.stop, stop
end

-- A number of layouts, one after the other. Each takes a byte at least, so the packet's end is the loop's too.
local function repeated(this, name, count, layout)
  begin(this, name)
  for index = 0, count - 1 do
    inside(this, name, layout, index)
  end
end
