#include "append_buffer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rocksdb_polder {

namespace {

// What is written at once.
constexpr size_t kCapacityMax = 1 << 20;
constexpr size_t kCapacityMin = 1 << 16;
constexpr size_t kAlignment = 4096;

}  // namespace

using ROCKSDB_NAMESPACE::Slice;

AppendBuffer::AppendBuffer(polder_file file, std::string path, uint64_t size, size_t block_bytes, Workers* workers)
    : file_(file),
      path_(std::move(path)),
      block_bytes_(block_bytes),
      workers_(workers),
      size_(size),
      start_(size) {}

AppendBuffer::~AppendBuffer() { Close().PermitUncheckedError(); }

IOStatus AppendBuffer::Append(const Slice& data) {
  Lock lock(mutex_);
  if (!is_open_) return Closed();
  const char* from = data.data();
  size_t left = data.size();
  while (left > 0) {
    if (length_ == capacity_) {
      const IOStatus status = MakeRoom(lock, length_ + left);
      if (!status.ok()) return status;
    }
    const size_t count = std::min(left, capacity_ - length_);
    std::memcpy(bytes_.get() + length_, from, count);
    length_ += count;
    from += count;
    left -= count;
    size_.store(start_ + length_, std::memory_order_release);
  }
  return IOStatus::OK();
}

IOStatus AppendBuffer::MakeRoom(Lock& lock, size_t wanted) {
  if (Grow(wanted)) return IOStatus::OK();
  if (capacity_ == 0) return IOStatus::IOError("While appending to a file: " + path_, "no memory");
  return WriteInBackground(lock);
}

// Hands the whole blocks to another thread. A partial block stays, so that the next write begins with a block as well.
IOStatus AppendBuffer::WriteInBackground(Lock& lock) {
  const IOStatus status = AwaitBackground(lock);
  if (!status.ok()) return status;
  if (!is_open_) return Closed();
  // Another thread may have written everything meanwhile.
  if (length_ < capacity_) return status;
  if (!earlier_) earlier_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, kCapacityMax)));
  if (!earlier_ || capacity_ != kCapacityMax) return WriteOutLocked(lock);
  const size_t partial = static_cast<size_t>((start_ + length_) % block_bytes_);
  earlier_.swap(bytes_);
  earlier_length_ = length_ - partial;
  earlier_start_ = start_;
  std::memcpy(bytes_.get(), earlier_.get() + earlier_length_, partial);
  start_ += earlier_length_;
  length_ = partial;
  clean_ = 0;
  is_in_background_ = true;
  const bool is_accepted = workers_->Try([self = shared_from_this()] {
    const IOStatus written = self->WriteAll(self->earlier_.get(), self->earlier_length_, self->earlier_start_);
    Lock locked(self->mutex_);
    // The next write tries again if this one failed.
    if (written.ok()) self->earlier_length_ = 0;
    self->is_in_background_ = false;
    self->written_.notify_all();
  });
  if (is_accepted) return status;
  is_in_background_ = false;
  return AwaitBackground(lock);
}

// Waits for the other thread, and writes its bytes if it could not.
IOStatus AppendBuffer::AwaitBackground(Lock& lock) {
  written_.wait(lock, [this] { return !is_in_background_; });
  if (earlier_length_ == 0) return IOStatus::OK();
  const IOStatus status = WriteAll(earlier_.get(), earlier_length_, earlier_start_);
  if (status.ok()) earlier_length_ = 0;
  return status;
}

// Whether there is more memory than before.
bool AppendBuffer::Grow(size_t wanted) {
  if (capacity_ >= kCapacityMax) return false;
  size_t capacity = std::max(capacity_ * 2, kCapacityMin);
  while (capacity < std::min(wanted, kCapacityMax)) capacity *= 2;
  char* memory = static_cast<char*>(std::aligned_alloc(kAlignment, capacity));
  if (memory == nullptr) return false;
  if (length_ > 0) std::memcpy(memory, bytes_.get(), length_);
  bytes_.reset(memory);
  capacity_ = capacity;
  return true;
}

IOStatus AppendBuffer::WriteAt(const Slice& data, uint64_t offset) {
  if (offset == Size()) return Append(data);
  Lock lock(mutex_);
  if (!is_open_) return Closed();
  IOStatus status = WriteOutLocked(lock);
  if (status.ok()) status = WriteAll(data.data(), data.size(), offset);
  if (!status.ok()) return status;
  start_ = std::max<uint64_t>(Size(), offset + data.size());
  length_ = clean_ = 0;
  size_.store(start_, std::memory_order_release);
  return status;
}

IOStatus AppendBuffer::Truncate(uint64_t size) {
  Lock lock(mutex_);
  if (!is_open_) return Closed();
  if (size == Size()) return IOStatus::OK();
  const IOStatus status = WriteOutLocked(lock);
  if (!status.ok()) return status;
  const int error = polder_file_truncate(file_, size);
  if (error < 0) return Failed("While truncating a file", path_, error);
  start_ = size;
  length_ = clean_ = 0;
  size_.store(size, std::memory_order_release);
  return IOStatus::OK();
}

IOStatus AppendBuffer::WriteOut() {
  Lock lock(mutex_);
  return is_open_ ? WriteOutLocked(lock) : IOStatus::OK();
}

IOStatus AppendBuffer::Sync() {
  {
    Lock lock(mutex_);
    if (!is_open_) return Closed();
    const IOStatus status = WriteOutLocked(lock);
    if (!status.ok()) return status;
  }
  const int error = polder_file_sync(file_);
  return error < 0 ? Failed("While syncing a file", path_, error) : IOStatus::OK();
}

IOStatus AppendBuffer::Close() {
  Lock lock(mutex_);
  if (!is_open_) return IOStatus::OK();
  IOStatus status = WriteOutLocked(lock);
  is_open_ = false;
  bytes_.reset();
  earlier_.reset();
  const int error = polder_file_close(file_);
  if (status.ok() && error < 0) status = Failed("While closing a file", path_, error);
  return status;
}

IOStatus AppendBuffer::WriteOutLocked(Lock& lock) {
  IOStatus status = AwaitBackground(lock);
  if (!status.ok() || !is_open_ || length_ <= clean_) return status;
  status = WriteAll(bytes_.get(), length_, start_);
  if (!status.ok()) return status;
  const size_t partial = std::min<size_t>((start_ + length_) % block_bytes_, length_);
  const size_t whole = length_ - partial;
  std::memmove(bytes_.get(), bytes_.get() + whole, partial);
  start_ += whole;
  length_ = clean_ = partial;
  return status;
}

IOStatus AppendBuffer::WriteAll(const char* data, size_t length, uint64_t offset) const {
  while (length > 0) {
    const ssize_t written = polder_file_write(file_, data, length, offset);
    if (written < 0) return Failed("While appending to a file", path_, written);
    if (written == 0) return IOStatus::IOError("While appending to a file: " + path_, "nothing was written");
    data += written;
    offset += static_cast<uint64_t>(written);
    length -= static_cast<size_t>(written);
  }
  return IOStatus::OK();
}

IOStatus AppendBuffer::Closed() const { return IOStatus::IOError(path_, "the file is closed"); }

}  // namespace rocksdb_polder
