#include "net/http_parse.h"
#include <strings.h>

enum { STEP_START, STEP_FIELDS, STEP_LENGTH, STEP_CHUNK_SIZE, STEP_CHUNK_DATA, STEP_CHUNK_END, STEP_TRAILER, STEP_DONE, STEP_BAD };
enum { TCHAR = 1, VCHAR = 2, HEX = 4, HOSTCHAR = 8 };

/* Character classes: tchar (RFC 9110 section 5.6.2), what a field value may hold (5.5), hexadecimal digits, what a Host may hold. */
#define TVH (TCHAR | VCHAR | HOSTCHAR)
static const uint8_t class[256] = {
    ['\t'] = VCHAR,
    [' '] = VCHAR,
    ['!'] = TVH,
    ['"'] = VCHAR,
    ['#'] = TCHAR | VCHAR,
    ['$' ... '\''] = TVH,
    ['(' ... ')'] = VCHAR | HOSTCHAR,
    ['*' ... '+'] = TVH,
    [','] = VCHAR | HOSTCHAR,
    ['-' ... '.'] = TVH,
    ['/'] = VCHAR,
    ['0' ... '9'] = TVH | HEX,
    [':' ... ';'] = VCHAR | HOSTCHAR,
    ['<'] = VCHAR,
    ['='] = VCHAR | HOSTCHAR,
    ['>' ... '@'] = VCHAR,
    ['A' ... 'F'] = TVH | HEX,
    ['G' ... 'Z'] = TVH,
    ['['] = VCHAR | HOSTCHAR,
    ['\\'] = VCHAR,
    [']'] = VCHAR | HOSTCHAR,
    ['^'] = TCHAR | VCHAR,
    ['_'] = TVH,
    ['`'] = TCHAR | VCHAR,
    ['a' ... 'f'] = TVH | HEX,
    ['g' ... 'z'] = TVH,
    ['{'] = VCHAR,
    ['|'] = TCHAR | VCHAR,
    ['}'] = VCHAR,
    ['~'] = TVH,
    [0x80 ... 0xff] = VCHAR,
};
static bool is(char c, int k) { return class[(uint8_t)c] & k; }
static int hex(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

static bool bad(http_parse *h, int status, err_code code, const char *why) {
  h->step = STEP_BAD;
  h->status = status;
  h->code = code;
  h->why = why;
  return false;
}
static bool bad400(http_parse *h, const char *why) { return bad(h, 400, ERR_INPUT, why); }
static bool bad_large(http_parse *h) {
  return bad(h, 413, ERR_TOO_LARGE, "the request body is larger than this server accepts: send less, or raise the server's --max-body");
}

void http_parse_init(http_parse *h, uint64_t max_body) {
  memset(h, 0, offsetof(http_parse, field)); /* the fields are counted, and 2 KiB need no clearing */
  h->max_body = max_body;
}

bool http_parse_idle(const http_parse *h, size_t n) { return h->step == STEP_START && h->pos == n; }

static bool word_is(str w, const char *lit) { return w.n == strlen(lit) && strncasecmp(w.p, lit, w.n) == 0; }

static str trim_ows(str s) {
  while (s.n && (*s.p == ' ' || *s.p == '\t')) s.p++, s.n--;
  while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t')) s.n--;
  return s;
}

/* Finds the line that begins at pos: true with its bytes (without CRLF) and pos moved behind it. False: it is not whole yet, or bad. One that ends
 * badly behind `limit` is as good as not whole: its length is what is wrong with it, which the caller sees, however the bytes came. */
static bool next_line(http_parse *h, const char *p, size_t n, size_t limit, str *ret) {
  const char *nl = memchr(p + h->scan, '\n', n - h->scan);
  h->scan = n;
  if (!nl) return false;
  size_t end = (size_t)(nl - p);
  if (end == h->pos || p[end - 1] != '\r') return end <= limit && bad400(h, "a line ends in a bare line feed: end each line with CR LF");
  *ret = (str){p + h->pos, end - 1 - h->pos};
  h->pos = h->scan = end + 1;
  return true;
}

/* Percent-decoding in place: the path only ever shrinks. */
static bool decode_path(http_parse *h, char *p) {
  char *d = p + h->path;
  for (size_t i = h->path, end = h->path + h->path_n; i < end; i++) {
    char c = p[i];
    if (c == '%') {
      if (end - i < 3 || !is(p[i + 1], HEX) || !is(p[i + 2], HEX)) return bad400(h, "the path has a % that two hexadecimal digits do not follow");
      c = (char)(hex(p[i + 1]) << 4 | hex(p[i + 2]));
      if (!c) return bad400(h, "the path holds %00");
      i += 2;
    }
    *d++ = c;
  }
  h->path_n = (uint32_t)(d - (p + h->path));
  return true;
}

/* request-target (RFC 9112 section 3.2): origin form, the absolute form a proxy's client sends, or "*". */
static bool parse_target(http_parse *h, char *p, str t) {
  for (size_t i = 0; i < t.n; i++)
    if ((uint8_t)t.p[i] < 0x21 || (uint8_t)t.p[i] > 0x7e || t.p[i] == '#')
      return bad400(h, "the request target holds a character that must be percent-encoded");
  if (*t.p != '/' && !str_is(t, "*")) {
    size_t skip = t.n > 7 && strncasecmp(t.p, "http://", 7) == 0 ? 7 : t.n > 8 && strncasecmp(t.p, "https://", 8) == 0 ? 8 : 0;
    const char *end = t.p + t.n;
    if (!skip || t.p[skip] == '/' || t.p[skip] == '?') return bad400(h, "the request target is neither a path nor an http URL");
    while (skip < t.n && t.p[skip] != '/' && t.p[skip] != '?') skip++;
    t.p += skip;
    t.n -= skip;
    /* "http://host" and "http://host?q" mean the root: the byte before (of the host) becomes the slash. */
    if (t.p == end || *t.p == '?') {
      t.p--;
      t.n++;
      p[t.p - p] = '/';
    }
  }
  const char *q = memchr(t.p, '?', t.n);
  size_t path_n = q ? (size_t)(q - t.p) : t.n;
  h->path = (uint32_t)(t.p - p);
  h->path_n = (uint32_t)path_n;
  h->query = h->path + (uint32_t)(q ? path_n + 1 : path_n);
  h->query_n = (uint32_t)(q ? t.n - path_n - 1 : 0);
  return decode_path(h, p);
}

static bool parse_request_line(http_parse *h, char *p, str line) {
  str method, rest, target, version;
  if (line.n > HTTP_MAX_LINE) return bad(h, 414, ERR_TOO_LARGE, "the request line is longer than 8192 bytes");
  if (!str_cut(line, ' ', &method, &rest) || !str_cut(rest, ' ', &target, &version) || !method.n || !target.n)
    return bad400(h, "the request line is not METHOD TARGET HTTP/1.1");
  for (size_t i = 0; i < method.n; i++)
    if (!is(method.p[i], TCHAR)) return bad400(h, "the method holds a character that is not allowed in one");
  if (version.n != 8 || memcmp(version.p, "HTTP/", 5) != 0 || version.p[6] != '.' || version.p[5] < '0' || version.p[5] > '9' || version.p[7] < '0' ||
      version.p[7] > '9')
    return bad400(h, "the request line does not end in HTTP/1.1");
  if (version.p[5] != '1' || version.p[7] > '1') return bad(h, 505, ERR_UNSUPPORTED, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  h->http10 = version.p[7] == '0';
  h->keep_alive = !h->http10;
  h->method = (uint32_t)(method.p - p);
  h->method_n = (uint32_t)method.n;
  return parse_target(h, p, target);
}

static bool parse_length(http_parse *h, str v) {
  if (h->has_length) return bad400(h, "there are two Content-Length fields");
  if (!v.n) return bad400(h, "Content-Length is empty");
  uint64_t x = 0;
  for (size_t i = 0; i < v.n; i++) {
    if (v.p[i] < '0' || v.p[i] > '9') return bad400(h, "Content-Length is not a decimal number");
    if (x <= h->max_body) x = x * 10 + (uint64_t)(v.p[i] - '0'); /* stops growing once too large, so it cannot wrap */
  }
  h->has_length = true;
  h->body_want = x;
  return true;
}

static bool parse_te(http_parse *h, str v) {
  if (h->has_te) return bad400(h, "there are two Transfer-Encoding fields");
  if (!word_is(v, "chunked")) return bad(h, 501, ERR_UNSUPPORTED, "the only Transfer-Encoding understood is: chunked");
  h->has_te = h->chunked = true;
  return true;
}

static void parse_connection(http_parse *h, str v) {
  for (str item, rest = v; rest.n;) {
    if (!str_cut(rest, ',', &item, &rest)) item = rest, rest.n = 0;
    item = trim_ows(item);
    if (word_is(item, "close")) h->keep_alive = false;
    else if (word_is(item, "keep-alive") && h->http10) h->keep_alive = true;
  }
}

/* One field line, checked; outputs point into the line. */
static bool split_field(http_parse *h, str line, str *name, str *value) {
  if (*line.p == ' ' || *line.p == '\t') return bad400(h, "a header line begins with white space (line folding is not allowed)");
  if (!str_cut(line, ':', name, value) || !name->n) return bad400(h, "a header line has no name before a colon");
  for (size_t i = 0; i < name->n; i++)
    if (!is(name->p[i], TCHAR)) return bad400(h, "a header name holds white space or another character that is not allowed in one");
  for (size_t i = 0; i < value->n; i++)
    if (!is(value->p[i], VCHAR)) return bad400(h, "a header value holds a control character");
  *value = trim_ows(*value);
  return true;
}

static bool parse_field(http_parse *h, const char *p, str line) {
  str name, value;
  if (!split_field(h, line, &name, &value)) return false;
  if (h->n_field == HTTP_MAX_FIELDS) return bad(h, 431, ERR_TOO_LARGE, "there are more than 128 header fields");
  h->field[h->n_field++] = (http_field){(uint32_t)(name.p - p), (uint32_t)name.n, (uint32_t)(value.p - p), (uint32_t)value.n};
  switch (name.n) { /* by length first: most fields are none of these */
  case 4:
    if (!word_is(name, "host")) break;
    if (h->has_host) return bad400(h, "there are two Host fields");
    for (size_t i = 0; i < value.n; i++)
      if (!is(value.p[i], HOSTCHAR)) return bad400(h, "Host holds a character that is not allowed in a host name");
    h->has_host = true;
    break;
  case 6:
    if (!word_is(name, "expect")) break;
    if (!word_is(value, "100-continue")) return bad(h, 417, ERR_UNSUPPORTED, "the only Expect understood is: 100-continue");
    h->expect_100 = true;
    break;
  case 10:
    if (word_is(name, "connection")) parse_connection(h, value);
    break;
  case 14:
    if (word_is(name, "content-length")) return parse_length(h, value);
    break;
  case 17:
    if (word_is(name, "transfer-encoding")) return parse_te(h, value);
    break;
  }
  return true;
}

/* The blank line has come: how is the body framed? RFC 9112 section 6.3, with every doubtful case refused. */
static bool end_of_head(http_parse *h) {
  if (!h->has_host && !h->http10) return bad400(h, "there is no Host field");
  if (h->has_te && h->has_length) return bad400(h, "there are both Content-Length and Transfer-Encoding");
  if (h->has_te && h->http10) return bad400(h, "HTTP/1.0 has no Transfer-Encoding");
  if (h->body_want > h->max_body) return bad_large(h);
  h->head_done = true;
  h->body = h->pos;
  h->step = h->chunked ? STEP_CHUNK_SIZE : h->body_want ? STEP_LENGTH : STEP_DONE;
  return true;
}

static bool run_head(http_parse *h, char *p, size_t n) {
  str line;
  if (h->step == STEP_START) {
    /* A CRLF left over from a sloppy client's last body is passed over (RFC 9112 section 2.2), twice at most. */
    while (n - h->pos >= 2 && h->pos - h->start < 4 && p[h->pos] == '\r' && p[h->pos + 1] == '\n') h->scan = h->pos += 2;
    if (h->pos == n || (p[h->pos] == '\r' && n - h->pos == 1)) return true;
    if (p[h->pos] == 0x16) return bad400(h, "this looks like TLS: this port speaks plain HTTP, use http://");
    if (!is(p[h->pos], TCHAR)) return bad400(h, "the request line is not METHOD TARGET HTTP/1.1");
    if (!next_line(h, p, n, h->pos + HTTP_MAX_LINE + 2, &line)) {
      if (h->step != STEP_BAD && n - h->pos > HTTP_MAX_LINE + 2) return bad(h, 414, ERR_TOO_LARGE, "the request line is longer than 8192 bytes");
      return h->step != STEP_BAD;
    }
    h->step = STEP_FIELDS;
    if (!parse_request_line(h, p, line)) return false;
  }
  while (h->step == STEP_FIELDS) {
    bool whole = next_line(h, p, n, h->start + HTTP_MAX_HEAD, &line);
    if (h->step == STEP_BAD) return false;
    if ((whole ? h->pos : n) - h->start > HTTP_MAX_HEAD) return bad(h, 431, ERR_TOO_LARGE, "the header fields are longer than 65536 bytes");
    if (!whole) return true;
    if (!(line.n ? parse_field(h, p, line) : end_of_head(h))) return false;
  }
  return true;
}

static bool parse_chunk_size(http_parse *h, str line) {
  uint64_t x = 0;
  size_t i = 0;
  for (; i < line.n && is(line.p[i], HEX); i++)
    if (x <= h->max_body) x = x << 4 | (uint64_t)hex(line.p[i]);
  if (!i) return bad400(h, "a chunk does not begin with its size in hexadecimal");
  if (i < line.n) {
    str ext = trim_ows((str){line.p + i, line.n - i});
    if (ext.n && *ext.p != ';') return bad400(h, "a chunk size is followed by something other than an extension");
    if (!ext.n) return bad400(h, "a chunk size is followed by white space");
    for (size_t k = 0; k < ext.n; k++)
      if (!is(ext.p[k], VCHAR)) return bad400(h, "a chunk extension holds a control character");
    h->ext_n += line.n - i;
    if (h->ext_n > HTTP_MAX_CHUNK_EXT) return bad400(h, "the chunk extensions are longer than 16384 bytes");
  }
  if (x > h->max_body - h->body_n) return bad_large(h);
  h->chunk_left = x;
  h->body_want += x;
  h->step = x ? STEP_CHUNK_DATA : STEP_TRAILER;
  return true;
}

/* One step of a chunked body. False: bad, or nothing more can be done with what is there (h->step tells). */
static bool chunk_step(http_parse *h, char *p, size_t n) {
  str line;
  switch (h->step) {
  case STEP_CHUNK_SIZE:
    if (next_line(h, p, n, h->pos + HTTP_MAX_CHUNK_LINE + 2, &line))
      return line.n > HTTP_MAX_CHUNK_LINE ? bad400(h, "a chunk-size line is longer than 256 bytes") : parse_chunk_size(h, line);
    if (h->step != STEP_BAD && n - h->pos > HTTP_MAX_CHUNK_LINE + 2) return bad400(h, "a chunk-size line is longer than 256 bytes");
    return false;
  case STEP_CHUNK_DATA: {
    size_t k = n - h->pos < h->chunk_left ? n - h->pos : (size_t)h->chunk_left;
    if (!k) return false;
    memmove(p + h->body + h->body_n, p + h->pos, k);
    h->body_n += k;
    h->pos += k;
    h->chunk_left -= k;
    if (!h->chunk_left) h->step = STEP_CHUNK_END;
    return true;
  }
  case STEP_CHUNK_END:
    if (n - h->pos && p[h->pos] != '\r') return bad400(h, "a chunk is longer than its size says");
    if (n - h->pos < 2) return false;
    if (p[h->pos + 1] != '\n') return bad400(h, "a chunk is longer than its size says");
    h->scan = h->pos += 2;
    h->step = STEP_CHUNK_SIZE;
    return true;
  case STEP_TRAILER: {
    size_t from = h->pos;
    bool whole = next_line(h, p, n, from + HTTP_MAX_HEAD - h->trailer_n, &line);
    if (h->step == STEP_BAD) return false;
    if (h->trailer_n + (whole ? h->pos - from : n - from) > HTTP_MAX_HEAD)
      return bad(h, 431, ERR_TOO_LARGE, "the trailer fields are longer than 65536 bytes");
    if (!whole) return false;
    h->trailer_n += h->pos - from;
    /* Trailers are checked and dropped: nothing that frames or authorises a request may come after it. */
    str name, value;
    if (line.n) return split_field(h, line, &name, &value);
    h->step = STEP_DONE;
    return true;
  }
  default: return false;
  }
}

static void run_chunks(http_parse *h, char *p, size_t *n) {
  while (chunk_step(h, p, *n)) continue;
  size_t end = h->body + h->body_n;
  if (h->pos > end) { /* close the gap, so that the buffer holds the body and not its framing */
    memmove(p + end, p + h->pos, *n - h->pos);
    *n -= h->pos - end;
    h->scan = h->scan > h->pos ? h->scan - (h->pos - end) : end;
    h->pos = end;
  }
}

http_parse_state http_parse_run(http_parse *h, char *p, size_t *n) {
  if (h->step <= STEP_FIELDS) run_head(h, p, *n);
  if (h->step == STEP_LENGTH) {
    h->body_n = *n - h->body < h->body_want ? *n - h->body : (size_t)h->body_want;
    h->pos = h->body + h->body_n;
    if (h->body_n == h->body_want) h->step = STEP_DONE;
  } else if (h->step >= STEP_CHUNK_SIZE && h->step <= STEP_TRAILER) {
    run_chunks(h, p, n);
  }
  return h->step == STEP_DONE ? HTTP_PARSE_DONE : h->step == STEP_BAD ? HTTP_PARSE_BAD : HTTP_PARSE_MORE;
}

str http_parse_field(const http_parse *h, const char *p, const char *name) {
  size_t len = strlen(name);
  for (int i = 0; i < h->n_field; i++)
    if (h->field[i].name_n == len && strncasecmp(p + h->field[i].name, name, len) == 0) return (str){p + h->field[i].value, h->field[i].value_n};
  return (str){NULL, 0};
}
