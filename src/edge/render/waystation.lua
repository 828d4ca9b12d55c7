-- What maps and rules cannot do: alternatives of a route, names of cookies, and asking others who may come.
-- No text of a tenant is code here: everything comes as values of maps. What fails leaves its verdict unset, and
-- the rules that follow refuse.

local args = table.pack(...)
local verifier = args[1]
local timeout = 5000
local remembered = 2
local seen, seen_count = {}, 0

local function unescape(text)
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

local function header(headers, name)
  local values = headers[name]
  return values and values[0]
end

-- Calls `f(name, value)` for every cookie until it returns true.
local function each_cookie(headers, f)
  local lines = headers["cookie"]
  if not lines then return end
  for _, line in pairs(lines) do
    for part in line:gmatch("[^;]+") do
      local name, value = part:match("^%s*([^=]-)%s*=%s*(.-)%s*$")
      if name and f(name, value) then return end
    end
  end
end

local function holds(txn, headers, condition)
  local kind, name, value = condition:match("^(%a),([^,]*),([^,]*)$")
  if not kind then return false end
  name, value = unescape(name), unescape(value)
  if kind == "h" then
    local values = headers[name]
    if values then
      for _, has in pairs(values) do
        if has == value then return true end
      end
    end
    return false
  elseif kind == "c" then
    local found = false
    each_cookie(headers, function(n, v)
      found = n == name and v == value
      return found
    end)
    return found
  elseif kind == "q" then
    return txn.sf:url_param(name) == value and txn.f:query() ~= nil
  elseif kind == "m" then
    return txn.sf:method() == value
  end
  return false
end

core.register_action("choose", { "http-req" }, function(txn)
  local headers = txn.http:req_get_headers()
  local shares, total, found = {}, 0, nil
  for entry in txn:get_var("txn.choose"):gmatch("[^;]+") do
    local conditions, value = entry:match("^([^>]*)>(.*)$")
    if conditions then
      local weight = conditions:match("^w,(%d+)$")
      if weight then
        total = total + tonumber(weight)
        shares[#shares + 1] = { total, value }
      else
        local all = true
        for condition in conditions:gmatch("[^&]+") do
          if not holds(txn, headers, condition) then all = false break end
        end
        if all then found = value break end
      end
    end
  end
  if not found and total > 0 then
    local drawn = math.random(total)
    for _, share in ipairs(shares) do
      if drawn <= share[1] then found = share[2] break end
    end
  end
  if not found then return end
  local backend, flags, id = unescape(found):match("^([^|]*)|?([^|]*)|?(.*)$")
  txn:set_var("txn.be", backend)
  if flags == "" then
    txn:unset_var("txn.f")
    txn:unset_var("txn.id")
  else
    txn:set_var("txn.f", flags)
    txn:set_var("txn.id", id)
  end
end, 0)

-- A cookie of another name becomes the one that HAProxy looks for.
core.register_action("cookie", { "http-req" }, function(txn)
  local wanted = txn:get_var("txn.cookie"):match("^([^|]*)")
  local headers = txn.http:req_get_headers()
  local kept, found = {}, false
  each_cookie(headers, function(name, value)
    if name == wanted and not found then
      found = true
      kept[#kept + 1] = "WAYSTATION=" .. value
    elseif name ~= "WAYSTATION" then
      kept[#kept + 1] = name .. "=" .. value
    end
  end)
  if found or headers["cookie"] then
    if #kept == 0 then
      txn.http:req_del_header("cookie")
    else
      txn.http:req_set_header("cookie", table.concat(kept, "; "))
    end
  end
end, 0)

core.register_action("basic", { "http-req" }, function(txn)
  local entry = txn:get_var("txn.basic")
  local users = entry and entry:match("^([^|]+)|")
  if not users then return end
  local given = header(txn.http:req_get_headers(), "authorization")
  if not given or not given:match("^[Bb][Aa][Ss][Ii][Cc] ") or #given > 1024 then
    txn:set_var("txn.verdict", "no")
    return
  end
  local now = core.now().sec
  local key = users .. " " .. given
  if seen[key] and seen[key] >= now then
    txn:set_var("txn.verdict", "yes")
    return
  end
  local answer = core.httpclient():get({
    url = "http://verifier/basic/" .. users,
    dst = verifier,
    headers = { ["authorization"] = { given } },
    timeout = timeout,
  })
  if answer and answer.status == 204 then
    if seen_count > 10000 then seen, seen_count = {}, 0 end
    if not seen[key] then seen_count = seen_count + 1 end
    seen[key] = now + remembered
    txn:set_var("txn.verdict", "yes")
  elseif answer and answer.status == 401 then
    txn:set_var("txn.verdict", "no")
  end
end, 0)

local hop = {
  ["connection"] = true, ["keep-alive"] = true, ["transfer-encoding"] = true, ["te"] = true, ["trailer"] = true,
  ["upgrade"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["proxy-connection"] = true,
}

core.register_action("external", { "http-req" }, function(txn)
  local entry = txn:get_var("txn.external")
  if not entry then return end
  local fields = {}
  for field in (entry .. "|"):gmatch("([^|]*)|") do fields[#fields + 1] = field end
  if #fields ~= 8 then return end
  local method, scheme, at, host, path, signin, only, answers = table.unpack(fields)
  local headers = txn.http:req_get_headers()
  local wanted
  if only ~= "" then
    wanted = {}
    for name in only:gmatch("[^,]+") do wanted[name] = true end
  end
  local sent = {}
  for name, values in pairs(headers) do
    if not hop[name] and (not wanted or wanted[name]) then
      local list = {}
      for _, value in pairs(values) do list[#list + 1] = value end
      sent[name] = list
    end
  end
  local asked = (txn.f:ssl_fc() and "https" or "http") .. "://" .. (header(headers, "host") or "") .. txn.f:pathq()
  sent["host"] = { host }
  sent["x-original-url"] = { asked }
  sent["x-original-method"] = { txn.f:method() }
  sent["x-forwarded-uri"] = { txn.f:pathq() }
  sent["x-forwarded-method"] = { txn.f:method() }
  local request = { url = scheme .. "://" .. host .. path, dst = at, headers = sent, timeout = timeout }
  local client = core.httpclient()
  local answer
  if method == "HEAD" then
    answer = client:head(request)
  elseif method == "POST" then
    request.body = ""
    answer = client:post(request)
  else
    answer = client:get(request)
  end
  if not answer or not answer.status then return end
  if answer.status >= 200 and answer.status < 300 then
    for name in answers:gmatch("[^,]+") do
      txn.http:req_del_header(name)
      local values = answer.headers and answer.headers[name]
      if values then
        for _, value in pairs(values) do txn.http:req_add_header(name, value) end
      end
    end
    txn:set_var("txn.verdict", "yes")
  elseif answer.status == 401 and signin ~= "" then
    local mark = signin:find("?", 1, true) and "&" or "?"
    local encoded = asked:gsub("[^%w%-%._~]", function(c) return string.format("%%%02X", c:byte()) end)
    txn:set_var("txn.signin", signin .. mark .. "rd=" .. encoded)
    txn:set_var("txn.verdict", "signin")
  elseif answer.status == 401 or answer.status == 403 then
    local challenge = answer.headers and header(answer.headers, "www-authenticate")
    if challenge then txn:set_var("txn.challenge", challenge) end
    txn:set_var("txn.verdict", tostring(answer.status))
  end
end, 0)
