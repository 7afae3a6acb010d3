// Makes URIs that begin with polder:// known to RocksDB.

#include "../rocksdb_polder.h"
#include "file_system.h"
#include "rocksdb/utilities/object_registry.h"

using ROCKSDB_NAMESPACE::FileSystem;
using ROCKSDB_NAMESPACE::IOStatus;
using ROCKSDB_NAMESPACE::ObjectLibrary;

namespace rocksdb_polder {

namespace {

FileSystem* Create(const std::string& uri, std::unique_ptr<FileSystem>* guard, std::string* message) {
  std::unique_ptr<PolderFileSystem> file_system;
  const IOStatus status = PolderFileSystem::Open(uri, &file_system);
  if (!status.ok()) {
    *message = status.ToString();
    return nullptr;
  }
  *guard = std::move(file_system);
  return guard->get();
}

void Register(ObjectLibrary& library) {
  library.AddFactory<FileSystem>(ObjectLibrary::PatternEntry("polder", false).AddSeparator("://", false), Create);
}

// When the shared library is loaded.
struct AtLoad {
  AtLoad() { Register(*ObjectLibrary::Default()); }
} at_load;

}  // namespace

IOStatus OpenFileSystem(const std::string& uri, std::shared_ptr<FileSystem>* file_system) {
  std::unique_ptr<PolderFileSystem> opened;
  const IOStatus status = PolderFileSystem::Open(uri, &opened);
  if (status.ok()) *file_system = std::move(opened);
  return status;
}

}  // namespace rocksdb_polder

// What RocksDB calls if it was built with this plugin (ROCKSDB_PLUGINS=polder).
extern "C" __attribute__((visibility("default"))) int register_polder_file_system(ObjectLibrary& library,
                                                                                    const std::string&) {
  rocksdb_polder::Register(library);
  return 1;
}
