#include "volume.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <map>
#include <vector>

#include "append_buffer.h"

namespace rocksdb_polder {

namespace {

// How long appended bytes stay in a buffer at most.
constexpr std::chrono::seconds kWriteOutInterval(1);

// A volume that is open, or is being closed if nothing refers to it any more.
struct Registered {
  std::weak_ptr<Volume> volume;
};

struct Registry {
  std::mutex mutex;
  std::condition_variable closed;
  // By the real path.
  std::map<std::string, Registered> volumes;
};

// It is never destroyed, because static objects of the program may close volumes at any time.
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

bool RealPath(const std::string& path, std::string* real) {
  char buffer[PATH_MAX];
  if (realpath(path.c_str(), buffer) == nullptr) return false;
  *real = buffer;
  return true;
}

// A program can end without destroying its file systems.
__attribute__((destructor)) void CloseAllVolumes() {
  Registry& registry = TheRegistry();
  std::vector<std::shared_ptr<Volume>> open;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    for (const auto& [name, registered] : registry.volumes) {
      if (auto volume = registered.volume.lock()) open.push_back(std::move(volume));
    }
  }
  for (const auto& volume : open) volume->Close();
}

}  // namespace

IOStatus Volume::Open(const Uri& uri, std::shared_ptr<Volume>* volume) {
  Registry& registry = TheRegistry();
  std::unique_lock<std::mutex> lock(registry.mutex);
  std::string name;
  while (RealPath(uri.volume, &name)) {
    const auto found = registry.volumes.find(name);
    if (found == registry.volumes.end()) break;
    if (auto shared = found->second.volume.lock()) {
      if (shared->read_only_ && !uri.read_only) {
        return IOStatus::Busy(uri.volume, "this process has the volume open for reading only");
      }
      *volume = std::move(shared);
      return IOStatus::OK();
    }
    registry.closed.wait(lock);
  }
  polder_volume handle{};
  const IOStatus status = OpenNew(uri, &handle);
  if (!status.ok()) return status;
  if (!RealPath(uri.volume, &name)) name = uri.volume;
  volume->reset(new Volume(handle, name, uri.read_only));
  registry.volumes[name] = Registered{*volume};
  return IOStatus::OK();
}

IOStatus Volume::OpenNew(const Uri& uri, polder_volume* handle) {
  struct polder_open_options open = POLDER_OPEN_OPTIONS_INIT;
  // What is in the buffers of this process would be hidden from other processes.
  open.flags = POLDER_OPEN_PRIVATE | (uri.read_only ? POLDER_OPEN_READ_ONLY : 0);
  open.commit_interval_ms = uri.commit;
  open.cache_bytes = uri.cache;
  const char* context = "While opening a volume";
  int error = polder_volume_open(uri.volume.c_str(), &open, handle);
  if (error == -ENOENT && uri.size > 0) {
    struct polder_create_options create = POLDER_CREATE_OPTIONS_INIT;
    create.size = uri.size;
    error = polder_volume_create(uri.volume.c_str(), &create, &open, handle);
    context = "While making a volume";
  }
  if (error == -EINVAL) return IOStatus::InvalidArgument(context, polder_message());
  return error < 0 ? Failed(context, uri.volume, error) : IOStatus::OK();
}

Volume::Volume(polder_volume handle, std::string name, bool read_only)
    : handle_(handle), name_(std::move(name)), read_only_(read_only) {
  struct statvfs space {};
  if (polder_volume_statvfs(handle_, &space) == 0) block_bytes_ = space.f_frsize;
  if (!read_only_) background_ = std::thread([this] { WriteOutOld(); });
}

Volume::~Volume() {
  Close();
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.volumes.erase(name_);
  registry.closed.notify_all();
}

void Volume::Close() {
  std::call_once(closed_, [this] {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_closing_ = true;
      changed_.notify_all();
    }
    if (background_.joinable()) background_.join();
    workers_.End();
    // Static objects are destroyed after the thread-local variables of their thread, which Polder may need.
    std::thread([this] {
      WriteOutAll();
      if (polder_volume_close(handle_) < 0) {
        fprintf(stderr, "polder: %s was not closed: %s\n", name_.c_str(), polder_message());
      }
    }).join();
  });
}

void Volume::AddWriter(uint64_t inode, const std::shared_ptr<AppendBuffer>& buffer) {
  std::lock_guard<std::mutex> lock(mutex_);
  writers_[inode] = buffer;
  changed_.notify_all();
}

void Volume::RemoveWriter(uint64_t inode, const AppendBuffer* buffer) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = writers_.find(inode);
  if (found == writers_.end()) return;
  const auto writer = found->second.lock();
  // Another writer may have replaced it.
  if (!writer || writer.get() == buffer) writers_.erase(found);
}

std::shared_ptr<AppendBuffer> Volume::FindWriter(uint64_t inode) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = writers_.find(inode);
  return found == writers_.end() ? nullptr : found->second.lock();
}

void Volume::WriteOutAll() {
  std::vector<std::shared_ptr<AppendBuffer>> buffers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [inode, writer] : writers_) {
      if (auto buffer = writer.lock()) buffers.push_back(std::move(buffer));
    }
  }
  for (const auto& buffer : buffers) {
    // The bytes stay in the buffer, and the next sync or close of the file reports the error.
    buffer->WriteOut().PermitUncheckedError();
  }
}

void Volume::WriteOutOld() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!is_closing_) {
    if (writers_.empty()) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, kWriteOutInterval, [this] { return is_closing_; });
    lock.unlock();
    WriteOutAll();
    lock.lock();
  }
}

}  // namespace rocksdb_polder
