// A RocksDB file system in a Polder volume, for programs that link with librocksdb-polder.so.
//
// Programs can also use the URI alone, without this header, through FileSystem::CreateFromString or Env::CreateFromUri.
// README.md describes it.

#pragma once

#include <memory>
#include <string>

#include "rocksdb/file_system.h"

namespace rocksdb_polder {

// Opens the volume that a URI such as polder:///path/to/volume?root=/db names. If this process has it open already, it
// is shared. The last file system or open file that is destroyed closes it.
//
// InvalidArgument: the URI cannot be understood, or the file is no volume. PathNotFound: there is no such file. Busy:
// another process has it open. Corruption: it is damaged.
__attribute__((visibility("default"))) ROCKSDB_NAMESPACE::IOStatus OpenFileSystem(
    const std::string& uri, std::shared_ptr<ROCKSDB_NAMESPACE::FileSystem>* file_system);

}  // namespace rocksdb_polder
