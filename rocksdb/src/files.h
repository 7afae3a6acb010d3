// Open files and directories.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "append_buffer.h"
#include "polder.h"
#include "rocksdb/file_system.h"
#include "status.h"
#include "volume.h"

namespace rocksdb_polder {

using ROCKSDB_NAMESPACE::DataVerificationInfo;
using ROCKSDB_NAMESPACE::DirFsyncOptions;
using ROCKSDB_NAMESPACE::Env;
using ROCKSDB_NAMESPACE::FileOptions;
using ROCKSDB_NAMESPACE::FSDirectory;
using ROCKSDB_NAMESPACE::FSRandomAccessFile;
using ROCKSDB_NAMESPACE::FSRandomRWFile;
using ROCKSDB_NAMESPACE::FSReadRequest;
using ROCKSDB_NAMESPACE::FSSequentialFile;
using ROCKSDB_NAMESPACE::FSWritableFile;
using ROCKSDB_NAMESPACE::IODebugContext;
using ROCKSDB_NAMESPACE::IOHandleDeleter;
using ROCKSDB_NAMESPACE::IOOptions;
using ROCKSDB_NAMESPACE::Slice;
using ROCKSDB_NAMESPACE::Temperature;

// The type of the function that ReadAsync calls, which differs between versions of RocksDB.
template <typename Class, typename Callback>
Callback CallbackOf(IOStatus (Class::*)(FSReadRequest&, const IOOptions&, Callback, void*, void**, IOHandleDeleter*,
                                        IODebugContext*));
using ReadCallback = decltype(CallbackOf(&FSRandomAccessFile::ReadAsync));

// A file of Polder with the volume that it keeps open.
class OpenFile {
 public:
  OpenFile(std::shared_ptr<Volume> volume, polder_file file, std::string path)
      : volume_(std::move(volume)), file_(file), path_(std::move(path)) {}
  ~OpenFile() { Close().PermitUncheckedError(); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // Reads as much as there is, also what a writer of this process has appended and Polder does not have yet.
  IOStatus Read(uint64_t offset, size_t length, char* scratch, Slice* result) const;
  IOStatus ReadMany(FSReadRequest* requests, size_t count) const;
  IOStatus Sync();
  IOStatus Close();

  polder_file file() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  bool WroteOut() const;
  IOStatus Finish(uint64_t offset, size_t length, ssize_t read, char* scratch, Slice* result) const;

  const std::shared_ptr<Volume> volume_;
  const polder_file file_;
  const std::string path_;
  // The number of the inode, once it was needed.
  mutable std::atomic<uint64_t> inode_{0};
  bool is_open_ = true;
};

class SequentialFile : public FSSequentialFile {
 public:
  SequentialFile(std::shared_ptr<Volume> volume, polder_file file, std::string path, const FileOptions& options)
      : file_(std::move(volume), file, std::move(path)), is_direct_(options.use_direct_reads) {}

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override;
  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override;
  IOStatus Skip(uint64_t n) override;
  IOStatus InvalidateCache(size_t offset, size_t length) override;
  bool use_direct_io() const override { return is_direct_; }

 private:
  OpenFile file_;
  const bool is_direct_;
  uint64_t position_ = 0;
  // Bytes that were read ahead.
  std::string ahead_;
  uint64_t ahead_start_ = 0;
};

class RandomAccessFile : public FSRandomAccessFile {
 public:
  RandomAccessFile(std::shared_ptr<Volume> volume, polder_file file, std::string path, const FileOptions& options)
      : file_(std::move(volume), file, std::move(path)), is_direct_(options.use_direct_reads) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override;
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions&, IODebugContext*) override;
  IOStatus ReadAsync(FSReadRequest& request, const IOOptions&, ReadCallback callback, void* argument, void** handle,
                     IOHandleDeleter* deleter, IODebugContext*) override;
  IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions&, IODebugContext*) override;
  IOStatus InvalidateCache(size_t offset, size_t length) override;
  void Hint(AccessPattern) override {}
  bool use_direct_io() const override { return is_direct_; }
  // Newer versions of RocksDB have this function, too.
  virtual IOStatus GetFileSize(uint64_t* size);

 private:
  OpenFile file_;
  const bool is_direct_;
};

class WritableFile : public FSWritableFile {
 public:
  WritableFile(std::shared_ptr<Volume> volume, std::shared_ptr<AppendBuffer> buffer, uint64_t inode,
               const FileOptions& options)
      : FSWritableFile(options), volume_(std::move(volume)), buffer_(std::move(buffer)), inode_(inode) {}
  ~WritableFile() override;

  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override;
  IOStatus Append(const Slice& data, const IOOptions&, const DataVerificationInfo&, IODebugContext*) override;
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) override;
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, const DataVerificationInfo&,
                            IODebugContext*) override;
  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override;
  IOStatus Flush(const IOOptions&, IODebugContext*) override;
  IOStatus Sync(const IOOptions&, IODebugContext*) override;
  IOStatus Fsync(const IOOptions&, IODebugContext*) override;
  IOStatus RangeSync(uint64_t offset, uint64_t length, const IOOptions&, IODebugContext*) override;
  IOStatus Allocate(uint64_t offset, uint64_t length, const IOOptions&, IODebugContext*) override;
  IOStatus InvalidateCache(size_t offset, size_t length) override;
  void PrepareWrite(size_t offset, size_t length, const IOOptions&, IODebugContext*) override;
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override;
  void SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) override;
  bool IsSyncThreadSafe() const override { return true; }

 private:
  const std::shared_ptr<Volume> volume_;
  const std::shared_ptr<AppendBuffer> buffer_;
  const uint64_t inode_;
};

class RandomRWFile : public FSRandomRWFile {
 public:
  RandomRWFile(std::shared_ptr<Volume> volume, polder_file file, std::string path)
      : file_(std::move(volume), file, std::move(path)) {}

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) override;
  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override;
  IOStatus Flush(const IOOptions&, IODebugContext*) override;
  IOStatus Sync(const IOOptions&, IODebugContext*) override;
  IOStatus Fsync(const IOOptions&, IODebugContext*) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override;

 private:
  OpenFile file_;
};

class Directory : public FSDirectory {
 public:
  Directory(std::shared_ptr<Volume> volume, polder_file file, std::string path)
      : file_(std::move(volume), file, std::move(path)) {}

  IOStatus Fsync(const IOOptions&, IODebugContext*) override;
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext*, const DirFsyncOptions& reason) override;
  IOStatus Close(const IOOptions&, IODebugContext*) override;

 private:
  OpenFile file_;
};

}  // namespace rocksdb_polder
