// The volumes that this process has open.

#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "polder.h"
#include "status.h"
#include "uri.h"
#include "workers.h"

namespace rocksdb_polder {

class AppendBuffer;

// An open volume. All file systems and files on it share it, and the last one that lets go closes it. A process that
// ends without that closes it when the library is unloaded.
class Volume {
 public:
  // Opens the volume of the URI, or shares it if this process has it open.
  static IOStatus Open(const Uri& uri, std::shared_ptr<Volume>* volume);

  ~Volume();
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  polder_volume handle() const { return handle_; }
  size_t block_bytes() const { return block_bytes_; }
  Workers* workers() { return &workers_; }

  // Files with appended bytes that Polder does not have yet. Readers find them by the number of the inode.
  void AddWriter(uint64_t inode, const std::shared_ptr<AppendBuffer>& buffer);
  void RemoveWriter(uint64_t inode, const AppendBuffer* buffer);
  std::shared_ptr<AppendBuffer> FindWriter(uint64_t inode) const;

  // Hands all appended bytes to Polder, makes everything durable, and closes the volume.
  void Close();

 private:
  Volume(polder_volume handle, std::string name, bool read_only);
  static IOStatus OpenNew(const Uri& uri, polder_volume* handle);
  void WriteOutAll();
  void WriteOutOld();

  const polder_volume handle_;
  // The real path.
  const std::string name_;
  const bool read_only_;
  size_t block_bytes_ = 4096;
  std::once_flag closed_;
  Workers workers_;

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<AppendBuffer>> writers_;
  std::condition_variable changed_;
  bool is_closing_ = false;
  std::thread background_;
};

}  // namespace rocksdb_polder
