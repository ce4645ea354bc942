-- What a body says, by its body type, as mqproto.bodies reads it: its kind, its value as text, or why it is shown as
-- bytes. Nothing of it is made, looked up or fetched. Of XML the tags are judged and not what they mean, of
-- BinaryFormatter's streams what they begin with: `mqproto decode` reads all of both.

-- A block, as Lua has room for 200 locals.
local content_of

do
  local MOST_SHOWN = 65536 -- bytes of UTF-8

  local function unexplained(...)
    error({reason = format(...)}, 0)
  end

  local function commas(number)
    local text = format("%d", number)
    local head = (#text - 1) % 3 + 1
    return text:sub(1, head) .. text:sub(head + 1):gsub("%d%d%d", ",%0")
  end

  local function sized(body, name, size, other)
    if #body ~= size and #body ~= other then
      unexplained("%s has %d bytes, and the body %s", name, size, commas(#body))
    end
  end

  -- UTF-8 for the tree: what ends strings there or disturbs them is escaped, and a long one has an end.
  local function readable(text)
    if #text > MOST_SHOWN then text = text:sub(1, MOST_SHOWN):gsub("[\192-\255][\128-\191]*$", "") .. " ..." end
    return (text:gsub("[%z\1-\8\11\12\14-\31\127]", function (each) return format("\\x%02x", each:byte()) end))
  end

  -- Texts

  -- Wireshark replaces what is not UTF-8, and ends at a NUL.
  local function is_utf8(range, body, first, last)
    local at = first
    while at <= last do
      local nul = body:find("\0", at, true) or last + 1
      local stop = math.min(nul, last + 1)
      if stop > at and range:range(at - 1, stop - at):string(ENC_UTF_8) ~= body:sub(at, stop - 1) then return false end
      at = stop + 1
    end
    return true
  end

  local function utf8(code)
    if code < 0x80 then return string.char(code) end
    if code < 0x800 then return string.char(0xC0 + floor(code / 64), 0x80 + code % 64) end
    local last = string.char(0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    if code < 0x10000 then return string.char(0xE0 + floor(code / 4096)) .. last end
    return string.char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64) .. last
  end

  -- Little-endian UTF-16 as UTF-8, as much of it as is wanted; nil if any of it is none.
  local function from_utf16(body, most)
    if #body % 2 == 1 then return nil end
    local parts, size, at = {}, 0, 1
    while at < #body do
      if size > most then
        -- All else is judged by its surrogates alone, whose high bytes are these.
        local high = body:find("[\216-\223]", at)
        while high and high % 2 == 1 do high = body:find("[\216-\223]", high + 1) end
        if not high then break end
        at = high - 1
      end
      local low, high = body:byte(at, at + 1)
      local code = low + high * 256
      at = at + 2
      if code >= 0xD800 and code < 0xE000 then
        low, high = body:byte(at, at + 1)
        local second = code < 0xDC00 and high and low + high * 256 or 0
        if second < 0xDC00 or second >= 0xE000 then return nil end
        code, at = 0x10000 + (code - 0xD800) * 1024 + second - 0xDC00, at + 2
      end
      if size <= most then
        parts[#parts + 1] = utf8(code)
        size = size + #parts[#parts]
      end
    end
    return table.concat(parts)
  end

  -- Numbers

  -- As Python prints a double: the fewest digits that give it back.
  local function float_text(number)
    if number ~= number then return "nan" end
    if number == math.huge or number == -math.huge then return number > 0 and "inf" or "-inf" end
    local digits, text = 0
    repeat
      digits = digits + 1
      text = format("%." .. digits - 1 .. "e", number)
    until tonumber(text) == number
    local exponent = tonumber(text:match("e(.*)$"))
    if exponent < -4 or exponent >= 16 then return text end
    return format("%." .. math.max(digits - 1 - exponent, 1) .. "f", number)
  end

  local function integer(name, size)
    return function (body, range)
      sized(body, name, size)
      local number = little_endian(body, 0, size)
      return format("%d", number >= 2 ^ (8 * size - 1) and number - 2 ^ (8 * size) or number)
    end
  end

  local function unsigned(name, size)
    return function (body)
      sized(body, name, size)
      return format("%d", little_endian(body, 0, size))
    end
  end

  local function real(name, size)
    return function (body, range)
      sized(body, name, size)
      return float_text(range:le_float())
    end
  end

  local function currency(body, range)
    sized(body, "VT_CY", 8)
    local sign, digits = tostring(range:le_int64()):match("^(-?)(%d+)$")
    digits = ("0"):rep(5 - #digits) .. digits
    return sign .. digits:sub(1, -5) .. "." .. digits:sub(-4)
  end

  -- The date of a day, counted from 1 March of the year 0.
  local function date_text(day)
    local era = floor(day / 146097)
    local of_era = day - era * 146097
    local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
    local month = floor((5 * of_year + 2) / 153)
    local date = of_year - floor((153 * month + 2) / 5) + 1
    month = month < 10 and month + 3 or month - 9
    return format("%04d-%02d-%02d", year + era * 400 + (month <= 2 and 1 or 0), month, date)
  end

  local function date(body, range)
    sized(body, "VT_DATE", 8)
    local days = range:le_float()
    if not (days > -657435 and days < 2958466) then
      unexplained("VT_DATE has days from the years 100 to 9999, and the body %s", float_text(days))
    end
    -- The whole part counts days, backwards too; the fraction is always later on that day.
    local whole = days < 0 and -floor(-days) or floor(days)
    local exact = math.abs(days - whole) * 86400000
    local ms = floor(exact)
    local rest = exact - ms
    if rest > 0.5 or (rest == 0.5 and ms % 2 == 1) then ms = ms + 1 end
    local day = whole + floor(ms / 86400000)
    ms = ms % 86400000
    local fraction = ms % 1000 > 0 and format(".%03d", ms % 1000):gsub("0+$", "") or ""
    return format(
      "%sT%02d:%02d:%02d%s", date_text(day + 693899), floor(ms / 3600000), floor(ms / 60000) % 60,
      floor(ms / 1000) % 60, fraction
    )
  end

  local function guid(body, at)
    return format(
      "%08x-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x", little_endian(body, at, 4), little_endian(body, at + 4, 2),
      little_endian(body, at + 6, 2), body:byte(at + 9, at + 16)
    )
  end

  -- XML, whose tags are to fit one another

  local function no_xml(why)
    unexplained("it is not XML: %s", why)
  end

  -- Where a tag ends, from behind its name on, and how many attributes it has.
  local function tag_end(text, at)
    local count = 0
    while true do
      local found = text:find("[<>\"']", at)
      local sign = found and text:sub(found, found)
      if sign == ">" then return found, count end
      if not found or sign == "<" then no_xml("a tag has no end") end
      at = text:find(sign, found + 1, true)
      if not at then no_xml("an attribute has no end") end
      at, count = at + 1, count + 1
    end
  end

  local LONG = {{"<!--", "-->"}, {"<![CDATA[", "]]>"}, {"<?", "?>"}}

  local function judge_tags(text)
    local at, open, count, has_root = 1, {}, 0, false
    while true do
      local found = text:find("<", at, true)
      if #open == 0 and text:find("[^ \t\r\n]", at) ~= found then no_xml("text stands beside its element") end
      if not found then break end
      local behind
      for _, each in ipairs(LONG) do
        if text:sub(found, found + #each[1] - 1) == each[1] then
          behind = text:find(each[2], found + #each[1], true)
          if not behind then no_xml("it ends too soon") end
          behind = behind + #each[2]
        end
      end
      if not behind then
        local slash, name, after = text:match("^<(/?)([^%s/<>=\"'!?&]+)()", found)
        if not name or #open == 0 and (has_root or slash == "/") then no_xml("a tag where none may be") end
        local last, attributes = tag_end(text, after)
        behind = last + 1
        if slash == "/" then
          if open[#open] ~= name then no_xml("mismatched tag") end
          open[#open] = nil
        else
          count = count + 1 + attributes
          if count > known.values_limit then
            unexplained("the XML has more than %s elements and attributes", commas(known.values_limit))
          end
          if #open >= known.depth_limit then
            unexplained("the XML is nested deeper than %d levels", known.depth_limit)
          end
          has_root = true
          if text:sub(last - 1, last - 1) ~= "/" then open[#open + 1] = name end
        end
      end
      at = behind
    end
    if #open > 0 or not has_root then no_xml("no element found, or one without an end") end
  end

  local ENTITIES = {["&amp;"] = true, ["&lt;"] = true, ["&gt;"] = true, ["&quot;"] = true, ["&apos;"] = true}

  local function judge_text(text)
    if text:find("[\1-\8\11\12\14-\31]") then no_xml("it has a character that may not be in XML") end
    if text:find("<![CDATA[", 1, true) then return end
    local at = text:find("&", 1, true)
    while at do
      local reference = text:match("^&#?%w+;", at)
      if not reference or reference:sub(2, 2) ~= "#" and not ENTITIES[reference] then
        no_xml("it refers to an entity that is not there")
      end
      at = text:find("&", at + 1, true)
    end
  end

  local function is_xml(body)
    local head = body:sub(1, 4)
    return head:sub(1, 1) == "<" or head == "\239\187\191<" or head == "\255\254<\0" or head == "\254\255\0<"
  end

  local function xml(body, range)
    local mark, text = body:sub(1, 2), body
    local is_wide = mark == "\255\254" or mark == "\254\255"
    if is_wide then
      if #body % 2 == 0 and mark == "\254\255" then text = text:gsub("(.)(.)", "%2%1") end
      text = from_utf16(text:sub(3), #body * 2)
      if not text then unexplained("the XML is not the UTF-16 that its first bytes say") end
    end
    if text:find("<!DOCTYPE", 1, true) then
      unexplained("the XML has a DOCTYPE, which may define entities and is not read")
    end
    if text:find("\0", 1, true) then no_xml("it has a NUL byte") end
    text = text:gsub("^\239\187\191", "")
    local encoding = text:match("^<%?xml%s+version%s*=%s*[\"'][^\"']*[\"']%s+encoding%s*=%s*[\"']([^\"']*)[\"']")
    local lower = encoding and encoding:lower() or "utf-8"
    if lower == "iso-8859-1" and not is_wide then
      text = text:gsub("[\128-\255]", function (each) return utf8(each:byte()) end)
    elseif lower == "us-ascii" and not is_wide then
      if text:find("[\128-\255]") then no_xml("it is not the ASCII that it says") end
    elseif lower == "utf-16" and not is_wide then
      no_xml("it is not the UTF-16 that it says")
    elseif lower ~= "utf-8" and lower ~= "utf-16" and lower ~= "iso-8859-1" and lower ~= "us-ascii" then
      unexplained("the XML is in '%s': UTF-8, UTF-16 and ISO-8859-1 are read", cut_to(encoding, 100))
    elseif not is_wide and not is_utf8(range, body, 1, #body) then
      no_xml("it is not UTF-8")
    end
    judge_tags(text)
    judge_text(text)
    return text
  end

  -- BinaryFormatter: its header, and the record that its root is.  [MS-NRBF] 2.6.1

  local function counted_text(body, at, range)
    local size, shift_by = 0, 1
    repeat
      local byte = body:byte(at)
      if not byte or shift_by > 2 ^ 28 then unexplained("the stream ends in a text's length at byte %s", commas(at - 1)) end
      size, shift_by, at = size + byte % 128 * shift_by, shift_by * 128, at + 1
    until byte < 128
    if at + size - 1 > #body then
      unexplained("the stream says %s bytes at byte %s, and has %s", commas(size), commas(at - 1), commas(#body - at + 1))
    end
    if not is_utf8(range, body, at, at + size - 1) then
      unexplained("the stream has a text that is not UTF-8 before byte %s", commas(at - 1 + size))
    end
    return body:sub(at, at + size - 1), at + size
  end

  local LIBRARY, STRING, CLASS, SYSTEM_CLASS = 12, 6, 5, 4

  local function binary(body, range)
    if body:byte(1) ~= 0 then
      unexplained("it is not a stream of BinaryFormatter: it does not begin with its header")
    elseif #body < 17 then
      unexplained("the stream says 16 bytes at byte 1, and has %d", #body - 1)
    elseif body:sub(10, 17) ~= "\1\0\0\0\0\0\0\0" then
      unexplained("the stream has another version than 1.0")
    end
    for _, gadget in ipairs(known.gadgets) do
      if body:find(gadget, 1, true) then
        unexplained("the stream names %s, with which streams attack those who read them", gadget)
      end
    end
    local at, record, root = 18, nil, body:sub(2, 5)
    repeat
      record = body:byte(at)
      if record == LIBRARY then _, at = counted_text(body, at + 5, range) end
    until record ~= LIBRARY
    if body:sub(at + 1, at + 4) ~= root or record ~= STRING and record ~= CLASS and record ~= SYSTEM_CLASS then
      return nil
    end
    local text = counted_text(body, at + 5, range)
    if record == STRING then return text, "System.String" end
    return nil, readable(text)
  end

  -- What reads each kind: gives the value as text, nil where the bytes are it, and the class if there is one.
  local READERS = {
    VT_NULL = function (body)
      sized(body, "VT_NULL", 0)
      return "null"
    end,
    VT_I1 = integer("VT_I1", 1),
    VT_I2 = integer("VT_I2", 2),
    VT_I4 = integer("VT_I4", 4),
    VT_I8 = function (body, range)
      sized(body, "VT_I8", 8)
      return tostring(range:le_int64())
    end,
    VT_UI1 = unsigned("VT_UI1", 1),
    VT_UI2 = unsigned("VT_UI2", 2),
    VT_UI4 = unsigned("VT_UI4", 4),
    VT_UI8 = function (body, range)
      sized(body, "VT_UI8", 8)
      return tostring(range:le_uint64())
    end,
    VT_R4 = real("VT_R4", 4),
    VT_R8 = real("VT_R8", 8),
    VT_CY = currency,
    VT_DATE = date,
    VT_BOOL = function (body)
      sized(body, "VT_BOOL", 2, 1)
      return body:find("[^%z]") and "true" or "false"
    end,
    VT_LPSTR = function (body)
      if body:find("[\128-\255]") then
        unexplained("VT_LPSTR is text, and the body is not ASCII, and the sender's code page is not known")
      end
      return (body:gsub("%z$", ""))
    end,
    VT_BSTR = function (body)
      return from_utf16(body, MOST_SHOWN) or unexplained("VT_BSTR is text, and the body is not UTF-16")
    end,
    VT_LPWSTR = function (body)
      local text = from_utf16(body, MOST_SHOWN) or unexplained("VT_LPWSTR is text, and the body is not UTF-16")
      return (text:gsub("%z$", ""))
    end,
    VT_CLSID = function (body)
      sized(body, "VT_CLSID", 16)
      return guid(body, 0)
    end,
    VT_STREAMED_OBJECT = function (body)
      if #body < 16 then
        unexplained("VT_STREAMED_OBJECT begins with a CLSID of 16 bytes, and the body has %d", #body)
      end
      return nil, guid(body, 0)
    end,
    ["VT_VECTOR|VT_UI1"] = function () end,
    ["VT_ARRAY|VT_UI1"] = function () end,
  }

  -- A table of `kind`, and `value` and `class` if there are any; or of the `reason` why it is bytes; nil if nothing is
  -- known of it.
  function content_of(body, body_type, range)
    local kind, read = known.body_types[body_type], nil
    if body_type == 0 then
      if not is_xml(body) then return nil end
      kind, read = "xml", xml
    elseif body_type == known.binary_formatter then
      kind, read = "binary", binary
    elseif kind then
      read = READERS[kind]
    else
      return {kind = "bytes", reason = format("body type 0x%x has no published form", body_type)}
    end
    local is_read, value, class = pcall(read, body, range)
    if is_read then return {kind = kind, value = value and readable(value), class = class} end
    if type(value) ~= "table" then error(value, 0) end
    return {kind = "bytes", reason = value.reason}
  end
end
