// The text that names a volume: polder:///path/to/volume?root=/db&size=1G

#pragma once

#include <cstdint>
#include <string>

#include "status.h"

namespace rocksdb_polder {

struct Uri {
  // The file or device of the volume.
  std::string volume;
  // The directory of the volume that is "/" for RocksDB. It begins with a slash and does not end with one; the root of
  // the volume is empty.
  std::string root;
  // A volume of so many bytes is made if the file does not exist. 0: it must exist.
  uint64_t size = 0;
  // Memory for metadata. 0: the default of Polder.
  uint64_t cache = 0;
  // Milliseconds after which a change is durable without a sync. 0: the default of Polder.
  uint32_t commit = 0;
  bool read_only = false;

  static IOStatus Parse(const std::string& text, Uri* uri);
};

// The path within the volume of a path that RocksDB uses, with `root` in front. Dots are resolved, so that no path leads
// above the root.
std::string Resolve(const std::string& root, const std::string& path);

}  // namespace rocksdb_polder
