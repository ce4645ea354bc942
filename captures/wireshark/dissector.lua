-- What is read where: packets in TCP streams, pings in UDP datagrams; and what the packet list says of them.

local base_bits, internal_bits, user_bits = named_bits.BaseHeader, named_bits.InternalHeader, named_bits.UserHeader

-- Of a packet, by its BaseHeader; the SessionHeader of a UserMessage lies beyond PacketSize.
local function sizes(data)
  local flags = little_endian(data, known.flags_at, 2)
  local size = little_endian(data, known.packet_size_at, 4)
  local is_internal = part(flags, base_bits.internal) == 1
  local rides = not is_internal and part(flags, base_bits.session_header) == 1
  return size, rides and known.session_header_size or 0, is_internal
end

-- All headers of a packet, as mqproto.wire.reference reads them. Ends with ENDED where the reading must.
local function read_headers(reader, top)
  local length = #reader.data
  if length < known.head_size then
    inside(top, "base", layouts.BaseHeader)
  end
  local size, riding, is_internal = sizes(reader.data)
  -- Whatever PacketSize says, its header is there, and what is wrong in it is to be told.
  reader.stop = math.max(math.min(size, length), known.head_size)
  if length ~= size + riding then
    fault(
      {_reader = reader, _section = layouts.BaseHeader.section},
      {name = "base.packet_size", at = known.packet_size_at}, "base.packet_size", size,
      format(
        "0x%x, as %d bytes are there%s", math.max(length - riding, 0), length,
        riding > 0 and " with a SessionHeader" or ""
      )
    )
  end
  local layout = layouts.UserMessage
  if is_internal then
    local flags = length > known.type_at and reader.data:byte(known.type_at + 1) or 0
    layout = known.internal_packets[part(flags, internal_bits.packet_type)]
    if not layout then
      inside(top, "base", layouts.BaseHeader)
      inside(top, "internal", layouts.InternalHeader)
      error(ENDED, 0)
    end
  elseif reader.stop >= known.user_flags_at + 4 then
    local flags = little_endian(reader.data, known.user_flags_at, 4)
    if part(flags, user_bits.over_http) == 1 then layout = layouts.SrmpMessage end
  end
  top._section, top._layout = layout.section, layout
  layout.read(top)
  if riding > 0 then
    reader.at, reader.stop = reader.stop, length
    inside(top, "session", layouts.SessionHeader)
  end
end

-- Read into the tree, then say what is wrong. The scope of the whole, and whether it was read to its end.
local function read_into(tree, tvb, path, read)
  local reader = new_reader(tvb, tree, tvb:len() > 0 and tvb:raw() or "")
  local top = new_scope(reader, nil, {})
  top._item, top._path = tree, path
  local is_whole, why = pcall(read, reader, top)
  if not is_whole and why ~= ENDED then error(why, 0) end
  if reader.seen < #reader.data then
    tree:add(fields["msmq.unread"], tvb:range(reader.seen))
  end
  -- A packet of which the capture, cut by a snapshot length, or the segment lacks a part may be as it should be.
  local lacking = tvb:reported_len() - tvb:len()
  if lacking > 0 then
    reader.faults = {}
    tree:add_proto_expert_info(experts.cut, format("%d bytes of it are not there: it is not judged", lacking))
  end
  for _, each in ipairs(reader.faults) do
    local place = each.field:find(".", 1, true) and top.base and place_of(top, each.field) or each
    local item = place.item or tree
    item:add_proto_expert_info(experts.malformed, each.text)
  end
  if reader.shown > MOST_FIELDS then
    tree:add_proto_expert_info(experts.many)
  end
  return top, is_whole
end

-- A GUID as the specifications print it: three little-endian groups, then bytes as they come.
local function guid_text(this, name)
  local data, at = this._reader.data, this._places[name].at
  return format(
    "%08X-%04X-%04X-%02X%02X-%02X%02X%02X%02X%02X%02X", little_endian(data, at, 4), little_endian(data, at + 4, 2),
    little_endian(data, at + 6, 2), data:byte(at + 9, at + 16)
  )
end

-- A queue's format name, or "no queue". Identifiers alone are of a queue on the manager that `hosts` names by type.
local function queue_text(user, name, queue_type, hosts)
  local value, place = user[name], user._places[name]
  if type(value) == "number" then
    local host = hosts[queue_type]
    return format("PRIVATE=%s\\%08X", host and guid_text(user, host) or "?", value)
  elseif type(value) == "table" and value.name then
    return "DIRECT=" .. value.name
  elseif type(value) == "table" and value.private_queue_identifier then
    return format("PRIVATE=%s\\%08X", guid_text(value, "source_queue_manager"), value.private_queue_identifier)
  elseif place and place.size == 16 then
    return "PUBLIC=" .. guid_text(user, name)
  end
  return "no queue"
end

local function sequence_text(id)
  return format("sequence %d/%d", id.time_stamp, id.ordinal)
end

-- What a SessionHeader acknowledges, and what it counts as sent. Bit k of the flags stands for the recoverable
-- message whose number is k above the one that is named.
local function session_text(session)
  local flags = session.recoverable_msg_ack_flags
  local recoverable = flags > 0 and format(", recoverable %d + 0x%x", session.recoverable_msg_ack_seq_number, flags)
  return format(
    "acknowledges up to %d%s; sent %d", session.ack_sequence_number, recoverable or "", session.user_msg_sequence_number
  )
end

-- ASCII in lower case, whatever the locale.
local function lowered(bytes)
  return (bytes:gsub("[A-Z]", function (letter) return string.char(letter:byte() + 32) end))
end

-- [MS-MQQB] 3.1.5.1.1, as mqproto.wire.messages has it.
local function acknowledgment_in(message, data)
  local properties, user = message.properties, message.user
  local class, label, body = properties.message_class, properties._places.label, properties._places.message_body
  if class ~= known.order_ack_class and class < known.first_final_class then return nil end
  if data:sub(label.at + 1, label.at + label.size) ~= known.label or body.size ~= known.body_size then return nil end
  if part(message.base.flags, base_bits.debug_header) == 1 then return nil end
  local queue = user.destination_queue
  if part(user.flags, user_bits.destination_type) == known.private_on_destination then
    if queue ~= known.order_queue then return nil end
  else
    local name = type(queue) == "table" and queue._places.name
    local path = name and data:sub(name.at + 1, name.at + name.size)
    if not path or lowered(path):sub(-#known.order_queue_path) ~= known.order_queue_path then return nil end
  end
  return class == known.order_ack_class and "order_ack" or "final_ack"
end

-- The body of an OrderAck or a FinalAck, below the bytes that it is made of.
local function show_acknowledgment(kind, message, tvb)
  local body = message.properties._places.message_body
  local layout = known.acknowledgments[kind]
  local range = tvb:range(body.at, body.size)
  local path = "msmq." .. kind
  local scope
  scope = read_into(message._item:add(fields[path], range), range:tvb(), path .. ".", function (_, top)
    top._section = layout.section
    layout.read(top)
  end)
  return scope
end

-- What the body says, below the bytes that it is made of; nothing of one that is encrypted.
local function show_content(message, tvb)
  local properties, security = message.properties, message.security
  if security and part(security.flags, named_bits.SecurityHeader.body_encrypted) == 1 then return end
  local body = properties._places.message_body
  local content = content_of(
    message._reader.data:sub(body.at + 1, body.at + body.size), properties.body_type,
    body.size > 0 and tvb:range(body.at, body.size)
  )
  if not content then return end
  local parent = body.size > 0 and body.item or properties._item
  if not parent then return end
  local item = parent:add(fields["msmq.content"], content.value or ""):set_generated()
  if not content.value then item:set_text("Content: " .. (content.reason or content.class or content.kind)) end
  for _, name in ipairs({"kind", "class", "reason"}) do
    if content[name] then item:add(fields["msmq.content." .. name], content[name]):set_generated() end
  end
  if content.reason then item:add_proto_expert_info(experts.unexplained) end
end

local function big_endian(data, from, to)
  local number = 0
  for at = from + 1, to do number = number * 256 + data:byte(at) end
  return number
end

-- A SID as people write it, as mqproto.wire.layouts.sid has it; nil if the bytes are none.
local function sid_text(data)
  local head = known.sid_head_size
  local revision, count = data:byte(1, 2)
  if revision ~= known.sid_revision or not count or count == 0 or count > known.sub_authority_limit then return nil end
  if #data ~= head + 4 * count then return nil end
  local high, low = big_endian(data, known.authority_at, known.authority_low_at), big_endian(data, known.authority_low_at, head)
  local words = {"S-1", high > 0 and format("0x%04X%08X", high, low) or format("%d", low)}
  for at = head, #data - 4, 4 do words[#words + 1] = format("%d", little_endian(data, at, 4)) end
  return table.concat(words, "-")
end

-- What a message says of its sender, its signature and its encryption, as mqproto.captures.decode.security.words has it.
-- Whether any of that is true, nobody can say without keys.
local function show_protection(message)
  local security, properties, listed = message.security, message.properties, message.multi_queue_format
  local signature = security and security._places.signature
  local beside = listed and listed.signature._places.signature
  if not security and not (beside and beside.size > 0) then return "" end
  local said, text = {}, ""
  if (signature and signature.size > 0) or (beside and beside.size > 0) then
    local hash = properties.hash_algorithm
    said.signed = values.MessagePropertiesHeader_hash_algorithm[hash] or format("0x%x", hash)
    text = ", signed " .. said.signed
  end
  if security then
    local bits = named_bits.SecurityHeader
    local kind, sender = part(security.flags, bits.sender_id_type), security._places.sender_id
    if kind > 0 then said.sender_kind = values.SecurityHeader_sender_id_type[kind] end
    if kind == 2 and sender.size == 16 then
      said.sender_id = guid_text(security, "sender_id")
    elseif kind == 1 then
      said.sender_id = sid_text(message._reader.data:sub(sender.at + 1, sender.at + sender.size))
    end
    if part(security.flags, bits.body_encrypted) == 1 then
      local cipher, length = properties.encryption_algorithm, known.key_bits[properties.privacy_level]
      said.encrypted = values.MessagePropertiesHeader_encryption_algorithm[cipher] or format("0x%x", cipher)
      if length and known.sized_ciphers[cipher] then said.encrypted = said.encrypted .. "-" .. length end
      text = text .. ", encrypted " .. said.encrypted
    end
  end
  local words = {}
  for _, name in ipairs({"sender_kind", "sender_id", "signed", "encrypted"}) do
    if said[name] then words[#words + 1] = name:gsub("_", " ") .. " " .. said[name] end
  end
  local parent = security and security._item or message._item
  local item = parent:add(fields["msmq.protection"], table.concat(words, ", ")):set_generated()
  for _, name in ipairs({"sender_kind", "sender_id", "signed", "encrypted"}) do
    if said[name] then item:add(fields["msmq.protection." .. name], said[name]):set_generated() end
  end
  return text
end

local function class_text(class)
  return values.MessagePropertiesHeader_message_class[class] or format("class 0x%x", class)
end

local function describe_acknowledgment(kind, message, body)
  local what = format("%s number %d", sequence_text(body.tx_sequence_id), body.tx_sequence_number)
  if kind == "order_ack" then return "OrderAck " .. what end
  return format(
    "FinalAck %s %s, message %d", class_text(message.properties.message_class), what, body.message_id
  )
end

local function describe_message(message)
  local user, transaction = message.user, message.transaction
  local words = {"express UserMessage"}
  if transaction then
    words[1] = "transactional UserMessage"
  elseif part(user.flags, user_bits.recoverable) == 1 then
    words[1] = "recoverable UserMessage"
  end
  words[#words + 1] = format("%d to %s", user.message_id, cut_to(message._destination, 120))
  local class = message.properties.message_class
  if class ~= 0 then words[#words + 1] = class_text(class) end
  if transaction then
    words[#words + 1] = format(
      "%s number %d after %d", sequence_text(transaction.tx_sequence_id), transaction.tx_sequence_number,
      transaction.previous_tx_sequence_number
    )
  end
  return table.concat(words, " ")
end

-- The line of the packet list: kind, numbers, queue, what is acknowledged.
local function describe(top, tvb)
  local flags = top.internal and top.internal.flags
  local answer = flags and part(flags, internal_bits.refused) == 1 and ", refused" or ""
  if top._layout == layouts.EstablishConnection then
    return format("EstablishConnection time stamp %d ms%s", top.time_stamp_ms, answer)
  elseif top._layout == layouts.ConnectionParameters then
    return format(
      "ConnectionParameters window %d, timeouts %d and %d ms%s", top.window_size, top.recoverable_ack_timeout_ms,
      top.ack_timeout_ms, answer
    )
  elseif top._layout == layouts.SessionAck then
    return "SessionAck " .. session_text(top.session)
  end
  local queue_type = part(top.user.flags, user_bits.destination_type)
  local hosts = {
    [known.private_on_destination] = "queue_manager_address", [known.private_on_source] = "source_queue_manager",
  }
  top._destination = queue_text(top.user, "destination_queue", queue_type, hosts)
  top._item:add(fields["msmq.destination"], top._destination):set_generated()
  local kind = acknowledgment_in(top, top._reader.data)
  local text = kind and describe_acknowledgment(kind, top, show_acknowledgment(kind, top, tvb))
    or describe_message(top)
  text = text .. show_protection(top)
  return top.session and text .. ", " .. session_text(top.session) or text
end

-- What senders should not do and receivers do not insist on, as mqproto.wire.lenient remarks on it.
local function remark_on(top)
  local function remark(holds, field, text, section)
    local place = holds and place_of(top, field)
    local item = place and place.item or top._item
    if holds then item:add_proto_expert_info(experts.remark, format("%s %s  [MS-MQMQ] %s", field, text, section)) end
  end

  local base, user, properties, security = top.base, top.user, top.properties, top.security
  if top.internal then
    local debugs = part(base.flags, base_bits.debug_header) == 1
    remark(debugs, "base.flags", "has DH set, which is for UserMessages", "2.2.19.1")
    remark(base.time_to_reach_queue_s ~= known.infinite, "base.time_to_reach_queue_s", "is not 0xffffffff", "2.2.19.1")
    return
  end
  local priority = part(base.flags, base_bits.priority)
  remark(top.transaction and priority > 0, "base.priority", "is not 0 in a transactional message", "2.2.19.1")
  local queue = user.destination_queue
  local is_direct = type(queue) == "table" and queue.name ~= nil
  local is_addressed = guid_text(user, "queue_manager_address"):find("[1-9A-F]") ~= nil
  remark(is_direct and is_addressed, "user.queue_manager_address", "is not null beside a direct name", "2.2.19.2")
  local asked, admin = keep(properties.flags, 0, 4) > 0, part(user.flags, user_bits.admin_type)
  remark(asked and admin == 0, "user.admin_queue", "is absent, though acknowledgments are asked for", "2.2.19.2")
  local is_less = properties.allocation_body_size < properties._places.message_body.size
  remark(is_less, "properties.allocation_body_size", "is below MessageSize", "2.2.19.3")
  local bits = named_bits.SecurityHeader
  local received = security and part(security.flags, bits.authenticated) + part(security.flags, bits.signature_type) > 0
  remark(received, "security.flags", "has AU or AS set, which a receiver sets", "2.2.20.6")
  local trailing = top._places.trailing.size
  remark(trailing > 0, "trailing", format("holds %d bytes that no header counts", trailing), "2.2.20")
end

-- Bytes in which no packet begins: a broken rule where one has to begin, else what they are is not known.
local function show_no_packet(tvb, root, why)
  root:add(fields["msmq.unread"], tvb:range())
  if why.is_tls then
    root:add_proto_expert_info(experts.encrypted, why.text)
    return "TLS"
  end
  root:add_proto_expert_info(experts.headless, "No packet begins here, and none has to: " .. why.text)
  return format("%d bytes of no packet", tvb:len())
end

local function dissect_packet(tvb, pinfo, tree)
  local root = tree:add(msmq, tvb:range())
  local why = why_headless(tvb, pinfo)
  if why then
    local text = show_no_packet(tvb, root, why)
    root:append_text(", " .. text)
    return text
  end
  local top, is_whole = read_into(root, tvb, "msmq.", read_headers)
  local text
  if is_whole then
    text = describe(top, tvb)
    if top.properties then show_content(top, tvb) end
    remark_on(top)
  else
    text = format("%s cut short at byte %d", top._layout and top._layout.name or "no packet", top._reader.seen)
  end
  if #top._reader.faults > 0 then text = text .. ", not valid" end
  root:append_text(", " .. text)
  return text
end

-- A packet whose head is broken has no end that one could rely on: it takes the rest of the segment.
local function packet_length(tvb, _, offset)
  local left = tvb:reported_length_remaining(offset)
  if tvb:len() - offset < known.head_size then return math.max(left, known.head_size) end
  local head = tvb:raw(offset, known.head_size)
  if not is_head(head) then return left end
  local size, riding = sizes(head)
  return size + riding
end

-- A frame may end one packet, have whole ones and begin the next; tcp then calls us more than once for it.
local function list(pinfo, text)
  pinfo.cols.protocol:set("MSMQ")
  if pinfo.private["msmq"] then
    pinfo.cols.info:append(" | " .. text)
  else
    pinfo.cols.info:set(text)
  end
  pinfo.private["msmq"] = "listed"
end

function msmq.dissector(tvb, pinfo, tree)
  dissect_tcp_pdus(tvb, tree, known.head_size, packet_length, function (packet, packet_info, packet_tree)
    list(packet_info, dissect_packet(packet, packet_info, packet_tree))
    return packet:len()
  end)
  return tvb:len()
end

-- On other ports: a segment that begins with a packet's head, not one fault in it. To a heuristic dissector in Lua,
-- Wireshark says that no bytes can be put together; tcp does so all the same when it is told where the last packet
-- begins and what is missing.
local function dissect_elsewhere(tvb, pinfo, tree)
  local length = tvb:len()
  if length < known.head_size or not is_head(tvb:raw(0, known.head_size), true) then return false end
  pinfo.conversation = msmq
  local at, missing = 0, 0
  while at < length and missing == 0 do
    local ends = at + packet_length(tvb, pinfo, at)
    if ends > length then missing = ends - length else at = ends end
  end
  if missing == 0 or length < tvb:reported_len() or not get_preference("tcp.desegment_tcp_streams") then
    msmq.dissector(tvb, pinfo, tree)
  else
    if at > 0 then msmq.dissector(tvb:range(0, at):tvb(), pinfo, tree) end
    if length - at < known.head_size then missing = DESEGMENT_ONE_MORE_SEGMENT end
    pinfo.desegment_offset, pinfo.desegment_len = at, missing
  end
  return true
end

function ping.dissector(tvb, pinfo, tree)
  local root = tree:add(msmq, tvb:range())
  local top, is_whole = read_into(root, tvb, "msmq.ping.", function (reader, top)
    top._section = layouts.Ping.section
    layouts.Ping.read(top)
    local left = #reader.data - reader.at
    if left > 0 then
      fault(top, {name = "unread", at = reader.at}, "after the last field", format("%d bytes", left), "the end")
    end
  end)
  local text = "no whole Ping"
  if is_whole then
    local flags, names = top.flags, named_bits.Ping
    text = format(
      "Ping %s, cookie %d%s", part(flags, names.client) == 1 and "request" or "response", top.cookie,
      part(flags, names.refused) == 1 and ", refused" or ""
    )
  end
  if #top._reader.faults > 0 then text = text .. ", not valid" end
  root:append_text(", " .. text)
  list(pinfo, text)
  return tvb:len()
end

local tcp_ports, udp_ports = DissectorTable.get("tcp.port"), DissectorTable.get("udp.port")
local taken_tcp, taken_udp = msmq_port, ping_port

function msmq.prefs_changed()
  tcp_ports:remove(taken_tcp, msmq)
  udp_ports:remove(taken_udp, ping)
  taken_tcp, taken_udp = msmq.prefs.tcp_ports, msmq.prefs.ping_ports
  tcp_ports:add(taken_tcp, msmq)
  udp_ports:add(taken_udp, ping)
end

tcp_ports:add(taken_tcp, msmq)
udp_ports:add(taken_udp, ping)
msmq:register_heuristic("tcp", dissect_elsewhere)
