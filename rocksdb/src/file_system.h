// A directory of a Polder volume as a file system of RocksDB.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files.h"
#include "rocksdb/file_system.h"
#include "uri.h"
#include "volume.h"

namespace rocksdb_polder {

using ROCKSDB_NAMESPACE::FileLock;
using ROCKSDB_NAMESPACE::FileSystem;
using ROCKSDB_NAMESPACE::Logger;
using ROCKSDB_NAMESPACE::MemoryMappedFileBuffer;

// Statuses and results are those of RocksDB's file system for POSIX.
class PolderFileSystem : public FileSystem {
 public:
  // Opens the volume of the URI, and makes the root directory if there is none.
  static IOStatus Open(const std::string& text, std::unique_ptr<PolderFileSystem>* file_system);

  const char* Name() const override { return "PolderFileSystem"; }
  const char* NickName() const override { return "polder"; }
  std::string GetId() const override { return text_; }

  IOStatus NewSequentialFile(const std::string& name, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* result, IODebugContext*) override;
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext*) override;
  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSWritableFile>* result, IODebugContext*) override;
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result, IODebugContext*) override;
  IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* result, IODebugContext*) override;
  IOStatus NewRandomRWFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<FSRandomRWFile>* result, IODebugContext*) override;
  IOStatus NewMemoryMappedFileBuffer(const std::string& name,
                                     std::unique_ptr<MemoryMappedFileBuffer>* result) override;
  IOStatus NewDirectory(const std::string& name, const IOOptions&, std::unique_ptr<FSDirectory>* result,
                        IODebugContext*) override;
  IOStatus NewLogger(const std::string& name, const IOOptions& options, std::shared_ptr<Logger>* result,
                     IODebugContext*) override;

  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override;
  IOStatus GetChildren(const std::string& name, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override;
  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override;
  IOStatus Truncate(const std::string& name, size_t size, const IOOptions&, IODebugContext*) override;
  IOStatus CreateDir(const std::string& name, const IOOptions&, IODebugContext*) override;
  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions&, IODebugContext*) override;
  IOStatus DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) override;
  IOStatus GetFileSize(const std::string& name, const IOOptions&, uint64_t* size, IODebugContext*) override;
  IOStatus GetFileModificationTime(const std::string& name, const IOOptions&, uint64_t* seconds,
                                   IODebugContext*) override;
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override;
  IOStatus LinkFile(const std::string& original, const std::string& link, const IOOptions&,
                    IODebugContext*) override;
  IOStatus NumFileLinks(const std::string& name, const IOOptions&, uint64_t* count, IODebugContext*) override;
  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&, bool* result,
                        IODebugContext*) override;
  IOStatus LockFile(const std::string& name, const IOOptions&, FileLock** lock, IODebugContext*) override;
  IOStatus UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) override;
  IOStatus GetTestDirectory(const IOOptions& options, std::string* path, IODebugContext*) override;
  IOStatus GetAbsolutePath(const std::string& name, const IOOptions&, std::string* path, IODebugContext*) override;
  IOStatus GetFreeSpace(const std::string& name, const IOOptions&, uint64_t* bytes, IODebugContext*) override;
  IOStatus IsDirectory(const std::string& name, const IOOptions&, bool* is_directory, IODebugContext*) override;

  FileOptions OptimizeForCompactionTableRead(
      const FileOptions& options, const ROCKSDB_NAMESPACE::ImmutableDBOptions& db_options) const override;
  IOStatus Poll(std::vector<void*>& handles, size_t completions) override;
  IOStatus AbortIO(std::vector<void*>& handles) override;
  // Newer versions of RocksDB have this function, too.
  virtual void SupportedOps(int64_t& operations) { operations = 0; }

 private:
  PolderFileSystem(std::string text, std::string root, std::shared_ptr<Volume> volume)
      : text_(std::move(text)), root_(std::move(root)), volume_(std::move(volume)) {}

  std::string Path(const std::string& name) const;
  IOStatus OpenPath(const char* context, const std::string& name, int flags, polder_file* file) const;
  IOStatus OpenWritable(const std::string& name, int flags, const FileOptions& options,
                        std::unique_ptr<FSWritableFile>* result) const;
  IOStatus Stat(const char* context, const std::string& name, struct stat* attributes) const;
  IOStatus WriteOut(const std::string& name) const;

  const std::string text_;
  // The directory of the volume that is "/" here. Empty: the root of the volume.
  const std::string root_;
  const std::shared_ptr<Volume> volume_;
};

}  // namespace rocksdb_polder
