#include "uri.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace rocksdb_polder {

namespace {

constexpr char kScheme[] = "polder://";

IOStatus Invalid(const std::string& text, const std::string& why) {
  return IOStatus::InvalidArgument(text, why + "; expected polder:///path/to/volume?root=/directory");
}

bool ParseNumber(const std::string& text, uint64_t* number) {
  if (text.empty()) return false;
  *number = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return false;
    const uint64_t value = static_cast<uint64_t>(digit - '0');
    if (*number > (std::numeric_limits<uint64_t>::max() - value) / 10) return false;
    *number = *number * 10 + value;
  }
  return true;
}

// A number of bytes: digits, and K, M, G or T for a power of 1024.
bool ParseBytes(std::string text, uint64_t* bytes) {
  static const std::string units = "KMGT";
  const size_t unit = text.empty() ? std::string::npos : units.find(text.back());
  const unsigned shift = unit == std::string::npos ? 0 : 10 * (static_cast<unsigned>(unit) + 1);
  if (shift > 0) text.pop_back();
  if (!ParseNumber(text, bytes) || *bytes == 0) return false;
  if (*bytes > std::numeric_limits<uint64_t>::max() >> shift) return false;
  *bytes <<= shift;
  return true;
}

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

// Replaces %3F and the like, for paths with a question mark, an ampersand or a percent sign.
bool Decode(const std::string& text, std::string* decoded) {
  decoded->clear();
  for (size_t at = 0; at < text.size(); at++) {
    if (text[at] != '%') {
      decoded->push_back(text[at]);
      continue;
    }
    if (at + 2 >= text.size()) return false;
    const int high = HexDigit(text[at + 1]), low = HexDigit(text[at + 2]);
    if (high < 0 || low < 0 || high + low == 0) return false;
    decoded->push_back(static_cast<char>(high * 16 + low));
    at += 2;
  }
  return true;
}

bool SetOption(const std::string& key, const std::string& value, Uri* uri) {
  uint64_t number = 0;
  if (key == "root") {
    uri->root = Resolve("", value);
    return value[0] == '/';
  }
  if (key == "size") return ParseBytes(value, &uri->size);
  if (key == "cache") return ParseBytes(value, &uri->cache);
  if (key == "commit") {
    const bool fits = ParseNumber(value, &number) && number > 0 && number <= UINT32_MAX;
    uri->commit = static_cast<uint32_t>(number);
    return fits;
  }
  if (key == "read_only") {
    uri->read_only = value == "true";
    return value == "true" || value == "false";
  }
  return false;
}

}  // namespace

IOStatus Uri::Parse(const std::string& text, Uri* uri) {
  *uri = Uri();
  if (text.compare(0, std::strlen(kScheme), kScheme) != 0) return Invalid(text, "another scheme");
  const size_t begin = std::strlen(kScheme);
  const size_t question = std::min(text.find('?'), text.size());
  if (!Decode(text.substr(begin, question - begin), &uri->volume)) return Invalid(text, "a wrong %");
  if (uri->volume.empty() || uri->volume[0] != '/') {
    return Invalid(text, "the volume has no absolute path");
  }
  for (size_t at = question; at < text.size();) {
    const size_t end = std::min(text.find('&', at + 1), text.size());
    const std::string option = text.substr(at + 1, end - at - 1);
    const size_t equals = option.find('=');
    std::string value;
    if (equals == std::string::npos || !Decode(option.substr(equals + 1), &value) ||
        !SetOption(option.substr(0, equals), value, uri)) {
      return Invalid(text, "`" + option + "` is no option of the form root=/path, size=1G, cache=64M, " +
                               "commit=5000 (milliseconds) or read_only=true");
    }
    at = end;
  }
  if (uri->read_only && uri->size > 0) return Invalid(text, "size and read_only exclude each other");
  return IOStatus::OK();
}

std::string Resolve(const std::string& root, const std::string& path) {
  // Most paths need no change.
  const bool is_plain = !path.empty() && path[0] == '/' && path.size() > 1 && path.back() != '/' &&
                        path.find("//") == std::string::npos && path.find("/.") == std::string::npos;
  if (is_plain) return root + path;
  std::vector<std::string> names;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    if (name == "..") {
      if (!names.empty()) names.pop_back();
    } else if (!name.empty() && name != ".") {
      names.push_back(name);
    }
    at = end + 1;
  }
  std::string resolved = root;
  for (const std::string& name : names) resolved += "/" + name;
  return resolved;
}

}  // namespace rocksdb_polder
