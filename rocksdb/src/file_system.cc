#include "file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace rocksdb_polder {

namespace {

// What a compaction reads at once. Nothing else reads ahead for it.
constexpr size_t kCompactionReadBytes = 1 << 20;
constexpr mode_t kFileMode = 0644;
constexpr mode_t kDirectoryMode = 0755;

class Lock : public FileLock {
 public:
  Lock(polder_file file, std::string name) : file_(file), name_(std::move(name)) {}
  polder_file file() const { return file_; }
  const std::string& name() const { return name_; }

 private:
  const polder_file file_;
  const std::string name_;
};

bool EndsWith(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

// How long the data of a new file lives, before RocksDB says more. `UNKNOWN` lets Polder learn it.
int LifetimeOf(const std::string& name, const FileOptions& options) {
  const std::string base = name.substr(name.rfind('/') + 1);
  if (EndsWith(base, ".log")) return POLDER_LIFETIME_SHORT;
  switch (options.temperature) {
    case ROCKSDB_NAMESPACE::Temperature::kHot:
      return POLDER_LIFETIME_MEDIUM;
    case ROCKSDB_NAMESPACE::Temperature::kWarm:
      return POLDER_LIFETIME_LONG;
    case ROCKSDB_NAMESPACE::Temperature::kCold:
      return POLDER_LIFETIME_EXTREME;
    default:
      break;
  }
  const bool is_rewritten = base.compare(0, 8, "MANIFEST") == 0 || base.compare(0, 3, "LOG") == 0 ||
                            base.compare(0, 7, "OPTIONS") == 0 || EndsWith(base, ".dbtmp");
  return is_rewritten ? POLDER_LIFETIME_MEDIUM : POLDER_LIFETIME_UNKNOWN;
}

}  // namespace

IOStatus PolderFileSystem::Open(const std::string& text, std::unique_ptr<PolderFileSystem>* file_system) {
  Uri uri;
  IOStatus status = Uri::Parse(text, &uri);
  if (!status.ok()) return status;
  std::shared_ptr<Volume> volume;
  status = Volume::Open(uri, &volume);
  if (!status.ok()) return status;
  if (!uri.root.empty() && !uri.read_only) {
    const int error = polder_mkdir_all(volume->handle(), uri.root.c_str());
    if (error < 0) return Failed("While making the root directory", uri.root, error);
  }
  file_system->reset(new PolderFileSystem(text, uri.root, std::move(volume)));
  return IOStatus::OK();
}

std::string PolderFileSystem::Path(const std::string& name) const {
  const std::string path = Resolve(root_, name);
  return path.empty() ? "/" : path;
}

IOStatus PolderFileSystem::OpenPath(const char* context, const std::string& name, int flags,
                                    polder_file* file) const {
  const int error = polder_file_open(volume_->handle(), Path(name).c_str(), flags, kFileMode, file);
  return error < 0 ? Failed(context, name, error) : IOStatus::OK();
}

IOStatus PolderFileSystem::NewSequentialFile(const std::string& name, const FileOptions& options,
                                             std::unique_ptr<FSSequentialFile>* result, IODebugContext*) {
  result->reset();
  polder_file file{};
  const IOStatus status = OpenPath("While opening a file for sequential reads", name, O_RDONLY, &file);
  if (status.ok()) result->reset(new SequentialFile(volume_, file, name, options));
  return status;
}

IOStatus PolderFileSystem::NewRandomAccessFile(const std::string& name, const FileOptions& options,
                                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext*) {
  result->reset();
  polder_file file{};
  const IOStatus status = OpenPath("While opening a file for random reads", name, O_RDONLY, &file);
  if (status.ok()) result->reset(new RandomAccessFile(volume_, file, name, options));
  return status;
}

IOStatus PolderFileSystem::NewWritableFile(const std::string& name, const FileOptions& options,
                                           std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  return OpenWritable(name, O_WRONLY | O_CREAT | O_TRUNC, options, result);
}

IOStatus PolderFileSystem::ReopenWritableFile(const std::string& name, const FileOptions& options,
                                              std::unique_ptr<FSWritableFile>* result, IODebugContext*) {
  const IOStatus status = WriteOut(name);
  return status.ok() ? OpenWritable(name, O_WRONLY | O_CREAT, options, result) : status;
}

// Overwriting an old file saves nothing where everything is appended, so the old contents go.
IOStatus PolderFileSystem::ReuseWritableFile(const std::string& name, const std::string& old_name,
                                             const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                                             IODebugContext* debug) {
  result->reset();
  const IOStatus status = RenameFile(old_name, name, options.io_options, debug);
  return status.ok() ? NewWritableFile(name, options, result, debug) : status;
}

IOStatus PolderFileSystem::OpenWritable(const std::string& name, int flags, const FileOptions& options,
                                        std::unique_ptr<FSWritableFile>* result) const {
  result->reset();
  polder_file file{};
  const IOStatus status = OpenPath("While opening a file for appending", name, flags, &file);
  if (!status.ok()) return status;
  struct stat attributes {};
  const int error = polder_file_stat(file, &attributes);
  if (error < 0) {
    const IOStatus failed = Failed("While opening a file for appending", name, error);
    polder_file_close(file);
    return failed;
  }
  // It is a hint, so a failure does not matter.
  polder_file_set_lifetime(file, LifetimeOf(name, options));
  const uint64_t size = static_cast<uint64_t>(attributes.st_size);
  auto buffer = std::make_shared<AppendBuffer>(file, name, size, volume_->block_bytes(), volume_->workers());
  volume_->AddWriter(attributes.st_ino, buffer);
  result->reset(new WritableFile(volume_, std::move(buffer), attributes.st_ino, options));
  return status;
}

IOStatus PolderFileSystem::NewRandomRWFile(const std::string& name, const FileOptions&,
                                           std::unique_ptr<FSRandomRWFile>* result, IODebugContext*) {
  result->reset();
  polder_file file{};
  const IOStatus status = OpenPath("While opening a file for random reads and writes", name, O_RDWR, &file);
  if (status.ok()) result->reset(new RandomRWFile(volume_, file, name));
  return status;
}

IOStatus PolderFileSystem::NewMemoryMappedFileBuffer(const std::string& name,
                                                     std::unique_ptr<MemoryMappedFileBuffer>*) {
  return IOStatus::NotSupported(name, "Polder maps no files into memory");
}

IOStatus PolderFileSystem::NewDirectory(const std::string& name, const IOOptions&,
                                        std::unique_ptr<FSDirectory>* result, IODebugContext*) {
  result->reset();
  polder_file file{};
  const IOStatus status = OpenPath("While opening a directory", name, O_RDONLY, &file);
  if (status.ok()) result->reset(new Directory(volume_, file, name));
  return status;
}

// RocksDB's logger writes through NewWritableFile.
IOStatus PolderFileSystem::NewLogger(const std::string& name, const IOOptions& options,
                                     std::shared_ptr<Logger>* result, IODebugContext* debug) {
  return FileSystem::NewLogger(name, options, result, debug);
}

IOStatus PolderFileSystem::Stat(const char* context, const std::string& name, struct stat* attributes) const {
  const int error = polder_stat(volume_->handle(), Path(name).c_str(), attributes);
  if (error < 0) return Failed(context, name, error);
  if (const auto writer = volume_->FindWriter(attributes->st_ino)) {
    attributes->st_size = std::max(attributes->st_size, static_cast<off_t>(writer->Size()));
  }
  return IOStatus::OK();
}

// Hands what a writer has in its buffer to Polder, before another name can refer to the file.
IOStatus PolderFileSystem::WriteOut(const std::string& name) const {
  struct stat attributes {};
  // The operation itself reports that there is no such file.
  if (polder_stat(volume_->handle(), Path(name).c_str(), &attributes) < 0) return IOStatus::OK();
  const auto writer = volume_->FindWriter(attributes.st_ino);
  return writer ? writer->WriteOut() : IOStatus::OK();
}

IOStatus PolderFileSystem::FileExists(const std::string& name, const IOOptions&, IODebugContext*) {
  struct stat attributes {};
  const int error = polder_stat(volume_->handle(), Path(name).c_str(), &attributes);
  switch (-error) {
    case 0:
      return IOStatus::OK();
    case EACCES:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOTDIR:
      return IOStatus::NotFound(name, polder_message());
    default:
      return Failed("While looking for a file", name, error);
  }
}

IOStatus PolderFileSystem::GetChildren(const std::string& name, const IOOptions&, std::vector<std::string>* result,
                                       IODebugContext*) {
  constexpr char kContext[] = "While listing a directory";
  result->clear();
  polder_dir directory{};
  int error = polder_dir_open(volume_->handle(), Path(name).c_str(), &directory);
  if (error == -EACCES || error == -ENOENT || error == -ENOTDIR) return IOStatus::NotFound(name, polder_message());
  if (error < 0) return Failed(kContext, name, error);
  struct polder_entry entry;
  while ((error = polder_dir_next(directory, &entry)) > 0) result->emplace_back(entry.name);
  const IOStatus status = error < 0 ? Failed(kContext, name, error) : IOStatus::OK();
  polder_dir_close(directory);
  return status;
}

IOStatus PolderFileSystem::DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) {
  const int error = polder_unlink(volume_->handle(), Path(name).c_str());
  return error < 0 ? Failed("While deleting a file", name, error) : IOStatus::OK();
}

IOStatus PolderFileSystem::Truncate(const std::string& name, size_t size, const IOOptions&, IODebugContext*) {
  struct stat attributes {};
  if (polder_stat(volume_->handle(), Path(name).c_str(), &attributes) == 0) {
    // A writer must append at the new end.
    if (const auto writer = volume_->FindWriter(attributes.st_ino)) return writer->Truncate(size);
  }
  const int error = polder_truncate(volume_->handle(), Path(name).c_str(), size);
  return error < 0 ? Failed("While truncating a file", name, error) : IOStatus::OK();
}

IOStatus PolderFileSystem::CreateDir(const std::string& name, const IOOptions&, IODebugContext*) {
  const int error = polder_mkdir(volume_->handle(), Path(name).c_str(), kDirectoryMode);
  return error < 0 ? Failed("While making a directory", name, error) : IOStatus::OK();
}

IOStatus PolderFileSystem::CreateDirIfMissing(const std::string& name, const IOOptions& options,
                                              IODebugContext* debug) {
  const int error = polder_mkdir(volume_->handle(), Path(name).c_str(), kDirectoryMode);
  // A volume that accepts no changes says so whether the directory exists or not.
  if (error != -EEXIST && error != -EROFS) {
    return error < 0 ? Failed("While making a directory", name, error) : IOStatus::OK();
  }
  const IOStatus refused = Failed("While making a directory", name, error);
  bool is_directory = false;
  const IOStatus status = IsDirectory(name, options, &is_directory, debug);
  if (!status.ok()) return error == -EROFS ? refused : status;
  return is_directory ? IOStatus::OK() : IOStatus::IOError("`" + name + "' exists but is not a directory");
}

IOStatus PolderFileSystem::DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) {
  const int error = polder_rmdir(volume_->handle(), Path(name).c_str());
  return error < 0 ? Failed("While deleting a directory", name, error) : IOStatus::OK();
}

IOStatus PolderFileSystem::GetFileSize(const std::string& name, const IOOptions&, uint64_t* size, IODebugContext*) {
  struct stat attributes {};
  const IOStatus status = Stat("While finding the size of a file", name, &attributes);
  *size = static_cast<uint64_t>(attributes.st_size);
  return status;
}

IOStatus PolderFileSystem::GetFileModificationTime(const std::string& name, const IOOptions&, uint64_t* seconds,
                                                   IODebugContext*) {
  struct stat attributes {};
  const IOStatus status = Stat("While finding the modification time of a file", name, &attributes);
  if (status.ok()) *seconds = static_cast<uint64_t>(attributes.st_mtime);
  return status;
}

IOStatus PolderFileSystem::RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                                      IODebugContext*) {
  // After a crash, the new name has the complete contents or none.
  const IOStatus status = WriteOut(from);
  if (!status.ok()) return status;
  const int error = polder_rename(volume_->handle(), Path(from).c_str(), Path(to).c_str(), 0);
  return error < 0 ? Failed("While renaming a file to " + to, from, error) : IOStatus::OK();
}

IOStatus PolderFileSystem::LinkFile(const std::string& original, const std::string& link, const IOOptions&,
                                    IODebugContext*) {
  const IOStatus status = WriteOut(original);
  if (!status.ok()) return status;
  const int error = polder_link(volume_->handle(), Path(original).c_str(), Path(link).c_str());
  return error < 0 ? Failed("While linking a file to " + link, original, error) : IOStatus::OK();
}

IOStatus PolderFileSystem::NumFileLinks(const std::string& name, const IOOptions&, uint64_t* count,
                                        IODebugContext*) {
  struct stat attributes {};
  const IOStatus status = Stat("While counting the links of a file", name, &attributes);
  if (status.ok()) *count = attributes.st_nlink;
  return status;
}

IOStatus PolderFileSystem::AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                                        bool* result, IODebugContext*) {
  struct stat attributes[2] = {};
  IOStatus status = Stat("While comparing files", first, &attributes[0]);
  if (status.ok()) status = Stat("While comparing files", second, &attributes[1]);
  if (status.ok()) *result = attributes[0].st_ino == attributes[1].st_ino;
  return status;
}

// One process has the volume open, so that only its own threads can want the same lock.
IOStatus PolderFileSystem::LockFile(const std::string& name, const IOOptions&, FileLock** lock, IODebugContext*) {
  *lock = nullptr;
  polder_file file{};
  IOStatus status = OpenPath("While opening a file for a lock", name, O_RDWR | O_CREAT, &file);
  if (!status.ok()) return status;
  const int error = polder_file_lock(file, LOCK_EX | LOCK_NB);
  if (error == 0) {
    *lock = new Lock(file, name);
    return status;
  }
  status = error == -EWOULDBLOCK ? IOStatus::IOError("lock held by current process: " + name, polder_message())
                                 : Failed("While locking a file", name, error);
  polder_file_close(file);
  return status;
}

IOStatus PolderFileSystem::UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) {
  const std::unique_ptr<Lock> ours(static_cast<Lock*>(lock));
  const int error = polder_file_close(ours->file());
  return error < 0 ? Failed("While unlocking a file", ours->name(), error) : IOStatus::OK();
}

IOStatus PolderFileSystem::GetTestDirectory(const IOOptions& options, std::string* path, IODebugContext* debug) {
  *path = "/rocksdbtest-" + std::to_string(geteuid());
  return CreateDirIfMissing(*path, options, debug);
}

IOStatus PolderFileSystem::GetAbsolutePath(const std::string& name, const IOOptions&, std::string* path,
                                           IODebugContext*) {
  const std::string resolved = Resolve("", name);
  *path = resolved.empty() ? "/" : resolved;
  return IOStatus::OK();
}

IOStatus PolderFileSystem::GetFreeSpace(const std::string& name, const IOOptions&, uint64_t* bytes,
                                        IODebugContext*) {
  struct stat attributes {};
  const IOStatus status = Stat("While finding free space", name, &attributes);
  if (!status.ok()) return status;
  struct statvfs space {};
  const int error = polder_volume_statvfs(volume_->handle(), &space);
  if (error < 0) return Failed("While finding free space", name, error);
  *bytes = static_cast<uint64_t>(space.f_frsize) * space.f_bavail;
  return status;
}

IOStatus PolderFileSystem::IsDirectory(const std::string& name, const IOOptions&, bool* is_directory,
                                       IODebugContext*) {
  struct stat attributes {};
  const IOStatus status = Stat("While looking for a directory", name, &attributes);
  if (status.ok() && is_directory != nullptr) *is_directory = S_ISDIR(attributes.st_mode);
  return status;
}

FileOptions PolderFileSystem::OptimizeForCompactionTableRead(
    const FileOptions& options, const ROCKSDB_NAMESPACE::ImmutableDBOptions& db_options) const {
  FileOptions optimized = FileSystem::OptimizeForCompactionTableRead(options, db_options);
  optimized.compaction_readahead_size = std::max(optimized.compaction_readahead_size, kCompactionReadBytes);
  return optimized;
}

// ReadAsync is complete when it returns.
IOStatus PolderFileSystem::Poll(std::vector<void*>&, size_t) { return IOStatus::OK(); }

IOStatus PolderFileSystem::AbortIO(std::vector<void*>&) { return IOStatus::OK(); }

}  // namespace rocksdb_polder
