// Bytes that were appended to a file and that Polder does not have yet.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

#include "polder.h"
#include "rocksdb/slice.h"
#include "status.h"
#include "workers.h"

namespace rocksdb_polder {

// The open end of a file.
//
// RocksDB flushes its log after every record, and a kernel would keep the record in its cache. Here this buffer keeps it,
// until it is full, until the file is synced, closed, renamed or read to its end, and for about a second at most. Whole
// blocks are written, so that Polder need not read the block at the end to complete it: after a sync within a block, the
// buffer still has the bytes of that block and writes them again.
//
// A full buffer is written by another thread, and appends go on in a second one. At most one of the two is being written.
//
// A write that fails leaves the bytes in the buffer. The next write tries again.
class AppendBuffer : public std::enable_shared_from_this<AppendBuffer> {
 public:
  // Takes the file over, which is `size` bytes long, and closes it at the end. The workers must exist until then.
  AppendBuffer(polder_file file, std::string path, uint64_t size, size_t block_bytes, Workers* workers);
  ~AppendBuffer();
  AppendBuffer(const AppendBuffer&) = delete;
  AppendBuffer& operator=(const AppendBuffer&) = delete;

  IOStatus Append(const ROCKSDB_NAMESPACE::Slice& data);
  IOStatus WriteAt(const ROCKSDB_NAMESPACE::Slice& data, uint64_t offset);
  IOStatus Truncate(uint64_t size);

  // Hands everything to Polder.
  IOStatus WriteOut();
  // The same, and makes it durable. Appends can go on meanwhile.
  IOStatus Sync();
  IOStatus Close();

  // The size of the file with the bytes in the buffer.
  uint64_t Size() const { return size_.load(std::memory_order_acquire); }
  polder_file file() const { return file_; }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  using Lock = std::unique_lock<std::mutex>;

  IOStatus MakeRoom(Lock& lock, size_t wanted);
  IOStatus WriteInBackground(Lock& lock);
  IOStatus AwaitBackground(Lock& lock);
  IOStatus WriteOutLocked(Lock& lock);
  IOStatus WriteAll(const char* data, size_t length, uint64_t offset) const;
  bool Grow(size_t wanted);
  IOStatus Closed() const;

  const polder_file file_;
  const std::string path_;
  const size_t block_bytes_;
  Workers* const workers_;
  std::atomic<uint64_t> size_;

  std::mutex mutex_;
  // The bytes of the file from start_ on. The first clean_ of them were written already.
  std::unique_ptr<char, Free> bytes_;
  size_t capacity_ = 0;
  size_t length_ = 0;
  size_t clean_ = 0;
  uint64_t start_;
  bool is_open_ = true;

  // The bytes before them, while another thread writes them and if that failed. Its length is 0 otherwise.
  std::unique_ptr<char, Free> earlier_;
  size_t earlier_length_ = 0;
  uint64_t earlier_start_ = 0;
  bool is_in_background_ = false;
  std::condition_variable written_;
};

}  // namespace rocksdb_polder
