// Errors of Polder as the statuses that RocksDB knows.

#pragma once

#include <string>

#include "polder.h"
#include "rocksdb/io_status.h"

namespace rocksdb_polder {

using ROCKSDB_NAMESPACE::IOStatus;

// The status for a call of polder.h that returned `error`, a negative error number, in this thread. `context` says what
// was attempted, and `path` with which file. RocksDB's own file system has the same statuses for the same numbers.
IOStatus Failed(const std::string& context, const std::string& path, ssize_t error);

}  // namespace rocksdb_polder
