#include "files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rocksdb_polder {

namespace {

// What a sequential file reads at once.
constexpr size_t kReadAheadBytes = 1 << 18;
// Requests of a MultiRead that need no memory of their own.
constexpr size_t kRequestsInPlace = 32;

int LifetimeOf(Env::WriteLifeTimeHint hint) {
  switch (hint) {
    case Env::WLTH_SHORT:
      return POLDER_LIFETIME_SHORT;
    case Env::WLTH_MEDIUM:
      return POLDER_LIFETIME_MEDIUM;
    case Env::WLTH_LONG:
      return POLDER_LIFETIME_LONG;
    case Env::WLTH_EXTREME:
      return POLDER_LIFETIME_EXTREME;
    default:
      return POLDER_LIFETIME_UNKNOWN;
  }
}

}  // namespace

IOStatus OpenFile::Read(uint64_t offset, size_t length, char* scratch, Slice* result) const {
  *result = Slice(scratch, 0);
  if (length == 0) return IOStatus::OK();
  if (scratch == nullptr) {
    return IOStatus::InvalidArgument(path_, "Polder maps no files into memory: switch allow_mmap_reads off");
  }
  return Finish(offset, length, polder_file_read(file_, scratch, length, offset), scratch, result);
}

IOStatus OpenFile::Finish(uint64_t offset, size_t length, ssize_t read, char* scratch, Slice* result) const {
  if (read >= 0 && static_cast<size_t>(read) < length && WroteOut()) {
    read = polder_file_read(file_, scratch, length, offset);
  }
  *result = Slice(scratch, read < 0 ? 0 : static_cast<size_t>(read));
  return read < 0 ? Failed("While reading a file", path_, read) : IOStatus::OK();
}

// Whether the file has become longer because a writer of this process had bytes in its buffer.
bool OpenFile::WroteOut() const {
  if (inode_.load(std::memory_order_relaxed) == 0) {
    struct stat attributes {};
    if (polder_file_stat(file_, &attributes) < 0) return false;
    inode_.store(attributes.st_ino, std::memory_order_relaxed);
  }
  const auto writer = volume_->FindWriter(inode_.load(std::memory_order_relaxed));
  return writer && writer->WriteOut().ok();
}

IOStatus OpenFile::ReadMany(FSReadRequest* requests, size_t count) const {
  polder_read in_place[kRequestsInPlace];
  std::vector<polder_read> allocated;
  polder_read* reads = in_place;
  if (count > kRequestsInPlace) {
    allocated.resize(count);
    reads = allocated.data();
  }
  for (size_t i = 0; i < count; i++) {
    reads[i] = polder_read{file_, requests[i].offset, requests[i].scratch, requests[i].len, 0};
  }
  // The results say which of them failed.
  polder_read_many(reads, count);
  for (size_t i = 0; i < count; i++) {
    FSReadRequest& request = requests[i];
    // The message of a failure is that of the last one, so the read is repeated.
    if (reads[i].result < 0) {
      request.status = Read(request.offset, request.len, request.scratch, &request.result);
    } else {
      request.status = Finish(request.offset, request.len, reads[i].result, request.scratch, &request.result);
    }
  }
  return IOStatus::OK();
}

IOStatus OpenFile::Sync() {
  const int error = polder_file_sync(file_);
  return error < 0 ? Failed("While syncing", path_, error) : IOStatus::OK();
}

IOStatus OpenFile::Close() {
  if (!is_open_) return IOStatus::OK();
  is_open_ = false;
  const int error = polder_file_close(file_);
  return error < 0 ? Failed("While closing", path_, error) : IOStatus::OK();
}

IOStatus SequentialFile::Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) {
  IOStatus status;
  if (is_direct_ || n >= kReadAheadBytes) {
    status = file_.Read(position_, n, scratch, result);
  } else {
    const bool is_ahead = position_ >= ahead_start_ && position_ + n <= ahead_start_ + ahead_.size();
    if (!is_ahead) {
      Slice read;
      ahead_.resize(kReadAheadBytes);
      status = file_.Read(position_, kReadAheadBytes, ahead_.data(), &read);
      ahead_.resize(read.size());
      ahead_start_ = position_;
    }
    const size_t from = static_cast<size_t>(position_ - ahead_start_);
    const size_t count = std::min(n, ahead_.size() - from);
    std::memcpy(scratch, ahead_.data() + from, count);
    *result = Slice(scratch, count);
  }
  position_ += result->size();
  return status;
}

IOStatus SequentialFile::PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                                        IODebugContext*) {
  return file_.Read(offset, n, scratch, result);
}

IOStatus SequentialFile::Skip(uint64_t n) {
  position_ += n;
  return IOStatus::OK();
}

IOStatus SequentialFile::InvalidateCache(size_t, size_t) {
  ahead_.clear();
  return IOStatus::OK();
}

IOStatus RandomAccessFile::Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                                IODebugContext*) const {
  return file_.Read(offset, n, scratch, result);
}

IOStatus RandomAccessFile::MultiRead(FSReadRequest* requests, size_t count, const IOOptions&, IODebugContext*) {
  return file_.ReadMany(requests, count);
}

// Complete before it returns, so that nothing is left for Poll and AbortIO.
IOStatus RandomAccessFile::ReadAsync(FSReadRequest& request, const IOOptions&, ReadCallback callback, void* argument,
                                     void** handle, IOHandleDeleter* deleter, IODebugContext*) {
  request.status = file_.Read(request.offset, request.len, request.scratch, &request.result);
  if (handle != nullptr) *handle = nullptr;
  if (deleter != nullptr) *deleter = nullptr;
  callback(request, argument);
  return IOStatus::OK();
}

// There is no cache to read into. RocksDB then reads ahead into buffers of its own.
IOStatus RandomAccessFile::Prefetch(uint64_t, size_t, const IOOptions&, IODebugContext*) {
  return IOStatus::NotSupported("Polder does not cache the contents of files");
}

IOStatus RandomAccessFile::InvalidateCache(size_t, size_t) { return IOStatus::OK(); }

IOStatus RandomAccessFile::GetFileSize(uint64_t* size) {
  struct stat attributes {};
  const int error = polder_file_stat(file_.file(), &attributes);
  if (error < 0) return Failed("While finding the size of a file", file_.path(), error);
  *size = static_cast<uint64_t>(attributes.st_size);
  return IOStatus::OK();
}

WritableFile::~WritableFile() { Close(IOOptions(), nullptr).PermitUncheckedError(); }

IOStatus WritableFile::Append(const Slice& data, const IOOptions&, IODebugContext*) { return buffer_->Append(data); }

IOStatus WritableFile::Append(const Slice& data, const IOOptions&, const DataVerificationInfo&, IODebugContext*) {
  return buffer_->Append(data);
}

IOStatus WritableFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&, IODebugContext*) {
  return buffer_->WriteAt(data, offset);
}

IOStatus WritableFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions&,
                                        const DataVerificationInfo&, IODebugContext*) {
  return buffer_->WriteAt(data, offset);
}

IOStatus WritableFile::Truncate(uint64_t size, const IOOptions&, IODebugContext*) { return buffer_->Truncate(size); }

IOStatus WritableFile::Close(const IOOptions&, IODebugContext*) {
  const IOStatus status = buffer_->Close();
  volume_->RemoveWriter(inode_, buffer_.get());
  return status;
}

// Readers of this process see what is in the buffer, and nobody else can read the file.
IOStatus WritableFile::Flush(const IOOptions&, IODebugContext*) { return IOStatus::OK(); }

IOStatus WritableFile::Sync(const IOOptions&, IODebugContext*) { return buffer_->Sync(); }

IOStatus WritableFile::Fsync(const IOOptions&, IODebugContext*) { return buffer_->Sync(); }

// What this call limits is the dirty data in a cache of the kernel. The library has no such cache.
IOStatus WritableFile::RangeSync(uint64_t, uint64_t, const IOOptions& options, IODebugContext* debug) {
  return strict_bytes_per_sync_ ? Sync(options, debug) : IOStatus::OK();
}

// Data is placed when it is written, one append after the other. There is nothing to allocate before.
IOStatus WritableFile::Allocate(uint64_t, uint64_t, const IOOptions&, IODebugContext*) { return IOStatus::OK(); }

void WritableFile::PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) {}

IOStatus WritableFile::InvalidateCache(size_t, size_t) { return IOStatus::OK(); }

uint64_t WritableFile::GetFileSize(const IOOptions&, IODebugContext*) { return buffer_->Size(); }

void WritableFile::SetWriteLifeTimeHint(Env::WriteLifeTimeHint hint) {
  FSWritableFile::SetWriteLifeTimeHint(hint);
  if (hint == Env::WLTH_NOT_SET) return;
  // A hint changes where data goes and nothing else, so a failure does not matter.
  polder_file_set_lifetime(buffer_->file(), LifetimeOf(hint));
}

IOStatus RandomRWFile::Write(uint64_t offset, const Slice& data, const IOOptions&, IODebugContext*) {
  for (size_t done = 0; done < data.size();) {
    const ssize_t written = polder_file_write(file_.file(), data.data() + done, data.size() - done, offset + done);
    if (written < 0) return Failed("While writing to a file", file_.path(), written);
    if (written == 0) return IOStatus::IOError(file_.path(), "nothing was written");
    done += static_cast<size_t>(written);
  }
  return IOStatus::OK();
}

IOStatus RandomRWFile::Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                            IODebugContext*) const {
  return file_.Read(offset, n, scratch, result);
}

IOStatus RandomRWFile::Flush(const IOOptions&, IODebugContext*) { return IOStatus::OK(); }

IOStatus RandomRWFile::Sync(const IOOptions&, IODebugContext*) { return file_.Sync(); }

IOStatus RandomRWFile::Fsync(const IOOptions&, IODebugContext*) { return file_.Sync(); }

IOStatus RandomRWFile::Close(const IOOptions&, IODebugContext*) { return file_.Close(); }

IOStatus Directory::Fsync(const IOOptions&, IODebugContext*) { return file_.Sync(); }

IOStatus Directory::FsyncWithDirOptions(const IOOptions& options, IODebugContext*, const DirFsyncOptions& reason) {
  // Syncing a file makes its name durable, and all changes of names before.
  const bool is_durable = reason.reason == DirFsyncOptions::kNewFileSynced;
  return is_durable && !options.force_dir_fsync ? IOStatus::OK() : file_.Sync();
}

IOStatus Directory::Close(const IOOptions&, IODebugContext*) { return file_.Close(); }

}  // namespace rocksdb_polder
