-- Where packets have to begin, and where nobody knows: the order in which a capture has the segments of each stream.

-- What a queue manager refuses at the sight of a packet's first bytes. TR is judged with the rest of the packet.
local function is_head(data, even_flags)
  if #data < known.head_size then return false end
  local scope = new_scope(new_reader(nil, nil, data:sub(1, known.head_size)), nil, layouts.BaseHeader)
  layouts.BaseHeader.read(scope)
  for _, each in ipairs(scope._reader.faults) do
    if even_flags or each.field ~= "flags" then return false end
  end
  return true
end

local why_headless

do
  -- Whether packets have to begin where tcp says that they do: for each side of each connection. A peer is at fault only
  -- where the capture has all that it sent, from its SYN on, in order. Behind anything else the next segment that begins
  -- with a packet's head shows where packets begin.
  local tcp_stream, tcp_seq, tcp_len = Field.new("tcp.stream"), Field.new("tcp.seq_raw"), Field.new("tcp.len")
  local tcp_syn, tcp_again = Field.new("tcp.flags.syn"), Field.new("tcp.analysis.retransmission")
  local sides, judged = {}, {}

  local LATE = {text = "the capture does not have the beginning of this stream"}
  local LOST = {text = "the capture lacks bytes before it"}
  local AGAIN = {text = "frames of this stream came late, or once more"}
  local CUT = {text = "the capture has not all of a frame before it"}
  local APART = {text = "segments are not put together, as the preferences of TCP have it"}
  local BEHIND = {text = "it stands behind bytes that begin none"}
  local BROKEN = {} -- One has to.

  -- The side that sent this frame, up to and with it. `why` says why no packet has to begin where it stands; nil if one has to.
  local function side_of(pinfo)
    local stream, seq = tcp_stream(), tcp_seq()
    if not stream or not seq then return nil end
    local key = format("%d %s %d", stream.value, tostring(pinfo.src), pinfo.src_port)
    local side = sides[key]
    if not side then
      side = {why = LATE}
      sides[key] = side
    end
    if pinfo.visited or side.frame == pinfo.number then return side end
    side.frame, side.has_called, side.is_again = pinfo.number, false, false
    local first, size = seq.value, tcp_len().value
    if tcp_syn().value then
      if not side.stop then side.stop, side.why = (first + 1) % known.sequence_numbers, nil end
      return side
    end
    if size == 0 then return side end
    local ahead = side.stop and (first - side.stop) % known.sequence_numbers
    if not ahead or 2 * ahead < known.sequence_numbers then
      if ahead and ahead > 0 then side.why = LOST end
      side.stop = (first + size) % known.sequence_numbers
    else
      side.why, side.is_again = AGAIN, true
      if ahead + size > known.sequence_numbers then side.stop = (first + size) % known.sequence_numbers end
    end
    -- Where an acknowledgment stands before its segment, tcp takes it for a second one, and hands on the next alone.
    if tcp_again() then side.why, side.is_again = AGAIN, true end
    if pinfo.caplen < pinfo.len then side.why = CUT end
    return side
  end

  -- What record of TLS begins here, as mqproto.captures.decode.sight has it; nil if none does.
  local function tls_record(data)
    if #data < known.tls_head_size then return nil end
    local content, major, minor, high, low, handshake = data:byte(1, known.tls_head_size)
    local size = high * 256 + low
    if not known.tls_contents[content] or major ~= known.tls_major or minor > known.tls_minor then return nil end
    if size == 0 or size > known.tls_record_limit then return nil end
    return content == known.tls_handshake and known.tls_hellos[handshake] or known.tls_contents[content]
  end

  local function encrypted(record)
    return {
      is_tls = true, text = format("TLS%s: the connection is encrypted, and what it carries cannot be read", record),
    }
  end

  -- Why no packet begins with these bytes though nobody is at fault; nil if one does, or has to. It is found out when a
  -- frame is seen for the first time, as what came before it is known then.
  function why_headless(tvb, pinfo)
    local side = side_of(pinfo)
    if not side then return nil end
    -- What is put together of several segments is a source of its own, and begins with its first byte.
    local starts = not side.has_called and tvb:offset() > 0
    side.has_called = true
    if tvb:len() < known.head_size then return nil end
    local head, is_first = tvb:raw(0, known.head_size), not pinfo.visited
    if is_head(head) then
      if is_first and starts and not side.is_again and pinfo.caplen == pinfo.len then side.why = nil end
      return nil
    end
    local place = format("%d %d %d", pinfo.number, tvb:offset(), tvb:len())
    if is_first then
      local record = not side.why and tls_record(head)
      judged[place] = side.why or record and encrypted(" (" .. record .. ")") or BROKEN
      if record then
        side.why = encrypted("")
      else
        side.why = side.why or BEHIND
      end
    end
    local why = judged[place] or AGAIN
    if why ~= BROKEN then return why end
    if not get_preference("tcp.desegment_tcp_streams") then return APART end
    return nil
  end

  -- Of segments that wait for others, tcp tells only those dissectors that come last.
  function order.dissector(_, pinfo)
    side_of(pinfo)
  end

  function order.init()
    sides, judged = {}, {}
  end

  register_postdissector(order)
end
