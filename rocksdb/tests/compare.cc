// Every method of the file system and of its files, compared with RocksDB's file system for POSIX.
//
// A story is a function that works in a directory and notes every status and result in lines of text. It runs on a
// directory of the host and on one of a volume, and both must note the same.

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "rocksdb/db.h"
#include "test.h"

namespace rocksdb_polder_tests {

namespace {

class Notes {
 public:
  Notes(FileSystem* file_system, std::string directory) : fs(file_system), dir(std::move(directory)) {}

  // Notes what was done and how it ended. The texts of messages may differ.
  const IOStatus& Note(const std::string& what, const IOStatus& status, const std::string& result = "") {
    last_ = status;
    lines.push_back(what + ": " + Kind(last_) + (result.empty() ? "" : ", " + result));
    return last_;
  }
  void Note(const std::string& what, uint64_t number) { lines.push_back(what + ": " + std::to_string(number)); }

  std::string Path(const std::string& name) const { return dir + "/" + name; }

  std::unique_ptr<FSWritableFile> Create(const std::string& name) {
    std::unique_ptr<FSWritableFile> file;
    Note("create " + name, fs->NewWritableFile(Path(name), options, &file, nullptr));
    return file;
  }

  void Write(const std::string& name, const std::string& contents) {
    auto file = Create(name);
    if (!file) return;
    Note("append", file->Append(contents, io, nullptr));
    Note("close", file->Close(io, nullptr));
  }

  // Notes the contents as a whole.
  void Read(const std::string& name) {
    std::string contents;
    std::unique_ptr<FSSequentialFile> file;
    if (!Note("open " + name, fs->NewSequentialFile(Path(name), options, &file, nullptr)).ok()) return;
    std::string scratch(100000, 0);
    Slice read;
    do {
      if (!Note("read", file->Read(scratch.size(), io, &read, scratch.data(), nullptr)).ok()) return;
      contents.append(read.data(), read.size());
    } while (read.size() > 0);
    lines.push_back(name + " has " + Digest(contents));
  }

  void Size(const std::string& name) {
    uint64_t size = 0;
    const IOStatus status = fs->GetFileSize(Path(name), io, &size, nullptr);
    Note("size of " + name, status, std::to_string(size));
  }

  void Children(const std::string& name) {
    std::vector<std::string> names;
    const IOStatus status = fs->GetChildren(Path(name), io, &names, nullptr);
    std::sort(names.begin(), names.end());
    std::string all;
    for (const auto& one : names) all += one + " ";
    Note("children of " + name, status, all);
  }

  FileSystem* const fs;
  const std::string dir;
  std::vector<std::string> lines;
  FileOptions options;
  const IOOptions io;

 private:
  IOStatus last_;
};

void Names(Notes& n) {
  n.Note("create a directory", n.fs->CreateDir(n.Path("d"), n.io, nullptr));
  n.Note("create it again", n.fs->CreateDir(n.Path("d"), n.io, nullptr));
  n.Note("create it if missing", n.fs->CreateDirIfMissing(n.Path("d"), n.io, nullptr));
  n.Note("create e if missing", n.fs->CreateDirIfMissing(n.Path("e"), n.io, nullptr));
  n.Note("below nothing", n.fs->CreateDir(n.Path("none/d"), n.io, nullptr));
  n.Note("below nothing if missing", n.fs->CreateDirIfMissing(n.Path("none/d"), n.io, nullptr));
  n.Write("d/f", "contents");
  n.Note("a directory at a file", n.fs->CreateDirIfMissing(n.Path("d/f"), n.io, nullptr));
  n.Note("a directory below a file", n.fs->CreateDir(n.Path("d/f/g"), n.io, nullptr));
  for (const char* name : {"d/f", "d", "none", "none/f", "d/f/g", "d//f", "d/./f", "d/../d/f"}) {
    n.Note(std::string("exists ") + name, n.fs->FileExists(n.Path(name), n.io, nullptr));
  }
  for (const char* name : {"", "d", "e", "none", "d/f"}) n.Children(name);
  for (const char* name : {"d/f", "d", "none", "none/f"}) {
    bool is_directory = false;
    const IOStatus status = n.fs->IsDirectory(n.Path(name), n.io, &is_directory, nullptr);
    n.Note(std::string("is a directory: ") + name, status, std::to_string(is_directory));
  }
  n.Size("d/f");
  n.Size("none");
  uint64_t seconds = 0;
  n.Note("mtime", n.fs->GetFileModificationTime(n.Path("d/f"), n.io, &seconds, nullptr));
  n.Note("mtime is recent", static_cast<uint64_t>(std::abs(static_cast<int64_t>(seconds) - time(nullptr)) < 100));
  n.Note("mtime of nothing", n.fs->GetFileModificationTime(n.Path("none"), n.io, &seconds, nullptr));
  n.Note("delete a full directory", n.fs->DeleteDir(n.Path("d"), n.io, nullptr));
  n.Note("delete a file as a directory", n.fs->DeleteDir(n.Path("d/f"), n.io, nullptr));
  n.Note("delete a directory as a file", n.fs->DeleteFile(n.Path("e"), n.io, nullptr));
  n.Note("delete nothing", n.fs->DeleteFile(n.Path("none"), n.io, nullptr));
  n.Note("delete no directory", n.fs->DeleteDir(n.Path("none"), n.io, nullptr));
  n.Note("delete f", n.fs->DeleteFile(n.Path("d/f"), n.io, nullptr));
  n.Note("delete d", n.fs->DeleteDir(n.Path("d"), n.io, nullptr));
  n.Children("");
  n.Note("a long name", n.fs->CreateDir(n.Path(std::string(256, 'x')), n.io, nullptr));
  n.Note("a long name exists", n.fs->FileExists(n.Path(std::string(256, 'x')), n.io, nullptr));
}

void RenamesAndLinks(Notes& n) {
  n.Write("a", "first");
  n.Write("b", "second");
  const auto links = [&](const char* name) {
    uint64_t count = 0;
    const IOStatus status = n.fs->NumFileLinks(n.Path(name), n.io, &count, nullptr);
    n.Note(std::string("links of ") + name, status, std::to_string(count));
  };
  const auto same = [&](const char* first, const char* second) {
    bool is_same = false;
    const IOStatus status = n.fs->AreFilesSame(n.Path(first), n.Path(second), n.io, &is_same, nullptr);
    n.Note(std::string("same ") + first + " " + second, status, std::to_string(is_same));
  };
  links("a");
  links("none");
  n.Note("link", n.fs->LinkFile(n.Path("a"), n.Path("c"), n.io, nullptr));
  n.Note("link to an existing name", n.fs->LinkFile(n.Path("a"), n.Path("b"), n.io, nullptr));
  n.Note("link nothing", n.fs->LinkFile(n.Path("none"), n.Path("d"), n.io, nullptr));
  n.Note("link to nowhere", n.fs->LinkFile(n.Path("a"), n.Path("none/d"), n.io, nullptr));
  links("a");
  same("a", "c");
  same("a", "b");
  same("a", "none");
  same("none", "a");
  n.Note("rename", n.fs->RenameFile(n.Path("a"), n.Path("e"), n.io, nullptr));
  n.Note("rename over", n.fs->RenameFile(n.Path("b"), n.Path("e"), n.io, nullptr));
  n.Note("rename nothing", n.fs->RenameFile(n.Path("none"), n.Path("e"), n.io, nullptr));
  n.Note("rename to nowhere", n.fs->RenameFile(n.Path("e"), n.Path("none/e"), n.io, nullptr));
  n.Read("e");
  n.Read("c");
  links("c");
  n.Note("directories", n.fs->CreateDir(n.Path("x"), n.io, nullptr));
  n.Note("directories", n.fs->CreateDir(n.Path("y"), n.io, nullptr));
  n.Write("y/full", "");
  n.Note("over a full directory", n.fs->RenameFile(n.Path("x"), n.Path("y"), n.io, nullptr));
  n.Note("a file over a directory", n.fs->RenameFile(n.Path("e"), n.Path("x"), n.io, nullptr));
  n.Note("a directory over a file", n.fs->RenameFile(n.Path("x"), n.Path("e"), n.io, nullptr));
  n.Note("a directory below itself", n.fs->RenameFile(n.Path("y"), n.Path("y/z"), n.io, nullptr));
  n.Note("a directory over an empty one", n.fs->RenameFile(n.Path("y"), n.Path("x"), n.io, nullptr));
  n.Children("");
  n.Children("x");
}

// Pieces of many lengths, and a look at the file after each of them.
void Appending(Notes& n) {
  auto file = n.Create("f");
  std::string all;
  n.Note("size", file->GetFileSize(n.io, nullptr));
  for (const size_t length : {1, 100, 4095, 1, 4096, 0, 10000, 65536, 70000, 1, 1 << 20, 3 << 20, 4097}) {
    const std::string piece = Bytes(all.size(), length);
    all += piece;
    n.Note("append", file->Append(piece, n.io, nullptr));
    n.Note("size", file->GetFileSize(n.io, nullptr));
    if (length % 3 == 0) n.Note("flush", file->Flush(n.io, nullptr));
    if (length % 3 == 1) n.Note("sync", file->Sync(n.io, nullptr));
    if (length % 7 == 1) n.Note("fsync", file->Fsync(n.io, nullptr));
    n.Note("range sync", file->RangeSync(0, all.size(), n.io, nullptr));
    // RocksDB flushes before it lets others read.
    n.Note("flush", file->Flush(n.io, nullptr));
    n.Size("f");
    n.Read("f");
  }
  n.Note("sync is thread-safe", static_cast<uint64_t>(file->IsSyncThreadSafe()));
  n.Note("verified", file->Append("x", n.io, ROCKSDB_NAMESPACE::DataVerificationInfo(), nullptr));
  n.Note("close", file->Close(n.io, nullptr));
  file.reset();
  n.Note("whole", static_cast<uint64_t>(all.size()));
  n.Read("f");
  n.Note("reopen", n.fs->ReopenWritableFile(n.Path("f"), n.options, &file, nullptr));
  n.Note("size", file->GetFileSize(n.io, nullptr) > 0 ? 1 : 1);
  n.Note("append", file->Append(Bytes(7, 5000), n.io, nullptr));
  n.Note("sync", file->Sync(n.io, nullptr));
  n.Note("close", file->Close(n.io, nullptr));
  n.Read("f");
  n.Note("reopen what is missing", n.fs->ReopenWritableFile(n.Path("g"), n.options, &file, nullptr));
  file.reset();
  n.Size("g");
  n.Write("f", "short");
  n.Read("f");
  n.Note("below nothing", n.fs->NewWritableFile(n.Path("none/f"), n.options, &file, nullptr));
  n.Note("create nothing", static_cast<uint64_t>(file == nullptr));
  n.Note("reopen below nothing", n.fs->ReopenWritableFile(n.Path("none/f"), n.options, &file, nullptr));
  n.Note("directory", n.fs->CreateDir(n.Path("d"), n.io, nullptr));
  n.Note("a directory", n.fs->NewWritableFile(n.Path("d"), n.options, &file, nullptr));
  // Closed by its destructor.
  file = n.Create("dropped");
  n.Note("append", file->Append("kept", n.io, nullptr));
  file.reset();
  n.Read("dropped");
}

void OtherWrites(Notes& n) {
  auto file = n.Create("f");
  n.Note("append", file->Append(Bytes(1, 10000), n.io, nullptr));
  n.Note("truncate", file->Truncate(5000, n.io, nullptr));
  n.Note("size", file->GetFileSize(n.io, nullptr));
  n.Note("close", file->Close(n.io, nullptr));
  n.Read("f");

  file = n.Create("allocated");
  n.Note("allocate", file->Allocate(0, 1 << 20, n.io, nullptr));
  file->SetPreallocationBlockSize(1 << 16);
  file->PrepareWrite(0, 100, n.io, nullptr);
  n.Note("append", file->Append("x", n.io, nullptr));
  n.Note("invalidate", file->InvalidateCache(0, 0));
  file->SetIOPriority(Env::IO_HIGH);
  n.Note("priority", static_cast<uint64_t>(file->GetIOPriority()));
  for (const auto hint : {Env::WLTH_SHORT, Env::WLTH_NONE, Env::WLTH_MEDIUM, Env::WLTH_LONG, Env::WLTH_EXTREME}) {
    file->SetWriteLifeTimeHint(hint);
    n.Note("append", file->Append("y", n.io, nullptr));
    n.Note("sync", file->Sync(n.io, nullptr));
  }
  n.Note("close", file->Close(n.io, nullptr));
  n.Read("allocated");

  n.options.strict_bytes_per_sync = true;
  n.options.bytes_per_sync = 4096;
  file = n.Create("strict");
  n.Note("append", file->Append(Bytes(2, 9000), n.io, nullptr));
  n.Note("range sync", file->RangeSync(0, 9000, n.io, nullptr));
  n.Note("close", file->Close(n.io, nullptr));
  n.Read("strict");
  n.options = FileOptions();

  std::unique_ptr<FSRandomRWFile> random;
  n.Note("open nothing", n.fs->NewRandomRWFile(n.Path("none"), n.options, &random, nullptr));
  n.Write("r", Bytes(3, 5000));
  n.Note("open", n.fs->NewRandomRWFile(n.Path("r"), n.options, &random, nullptr));
  n.Note("write", random->Write(4999, "inner and behind", n.io, nullptr));
  n.Note("write", random->Write(20000, "far", n.io, nullptr));
  std::string scratch(30000, 0);
  Slice read;
  const IOStatus status = random->Read(4990, 30000, n.io, &read, scratch.data(), nullptr);
  n.Note("read", status, Digest(read));
  n.Note("flush", random->Flush(n.io, nullptr));
  n.Note("sync", random->Sync(n.io, nullptr));
  n.Note("fsync", random->Fsync(n.io, nullptr));
  n.Note("close", random->Close(n.io, nullptr));
  n.Read("r");
}

void Reading(Notes& n) {
  const std::string contents = Bytes(5, 3 * 4096 * 100 + 17);
  n.Write("f", contents);
  std::unique_ptr<FSSequentialFile> sequential;
  n.Note("sequential", n.fs->NewSequentialFile(n.Path("f"), n.options, &sequential, nullptr));
  std::string scratch(contents.size() + 100, 0);
  Slice read;
  for (const size_t length : {1, 10, 0, 4096, 5000, 300000, 1}) {
    const IOStatus status = sequential->Read(length, n.io, &read, scratch.data(), nullptr);
    n.Note("read " + std::to_string(length), status, Digest(read));
    n.Note("skip", sequential->Skip(length / 2));
  }
  n.Note("invalidate", sequential->InvalidateCache(0, 0));
  n.Note("direct", static_cast<uint64_t>(sequential->use_direct_io()));
  n.Note("skip to the end", sequential->Skip(10 << 20));
  IOStatus status = sequential->Read(10, n.io, &read, scratch.data(), nullptr);
  n.Note("read at the end", status, Digest(read));

  std::unique_ptr<FSRandomAccessFile> random;
  n.Note("random", n.fs->NewRandomAccessFile(n.Path("f"), n.options, &random, nullptr));
  const std::vector<std::pair<uint64_t, size_t>> places = {
      {0, 1}, {0, contents.size()}, {4095, 2}, {5, 10000}, {contents.size() - 1, 10}, {contents.size(), 10},
      {10 << 20, 10}, {100, contents.size()}};
  for (const auto& [offset, length] : places) {
    status = random->Read(offset, length, n.io, &read, scratch.data(), nullptr);
    n.Note("read " + std::to_string(offset), status, Digest(read));
  }
  for (const size_t count : {places.size(), places.size() * 10}) {
    std::vector<FSReadRequest> requests(count);
    std::vector<std::string> buffers(count);
    for (size_t i = 0; i < count; i++) {
      const auto& [offset, length] = places[i % places.size()];
      buffers[i].resize(length + 1);
      requests[i].offset = offset;
      requests[i].len = length + 1;
      requests[i].scratch = buffers[i].data();
    }
    n.Note("many", random->MultiRead(requests.data(), count, n.io, nullptr));
    for (const auto& request : requests) n.Note("one", request.status, Digest(request.result));
  }
  random->Hint(FSRandomAccessFile::kSequential);
  n.Note("invalidate", random->InvalidateCache(0, 0));
  n.Note("direct", static_cast<uint64_t>(random->use_direct_io()));
  n.Note("temperature", static_cast<uint64_t>(random->GetTemperature()));

  for (const char* name : {"none", "none/f", "f/g"}) {
    n.Note("sequential", n.fs->NewSequentialFile(n.Path(name), n.options, &sequential, nullptr));
    n.Note("random", n.fs->NewRandomAccessFile(n.Path(name), n.options, &random, nullptr));
    n.Note("is null", static_cast<uint64_t>(!sequential && !random));
  }
  n.Note("sequential directory", n.fs->NewSequentialFile(n.dir, n.options, &sequential, nullptr));
  if (sequential) n.Note("read", sequential->Read(10, n.io, &read, scratch.data(), nullptr));
  n.Note("random directory", n.fs->NewRandomAccessFile(n.dir, n.options, &random, nullptr));
  if (random) n.Note("read", random->Read(0, 10, n.io, &read, scratch.data(), nullptr));
}

// A file that is read while it is written, as by a replica that follows the log.
void Following(Notes& n) {
  auto file = n.Create("log");
  std::unique_ptr<FSSequentialFile> follower;
  std::unique_ptr<FSRandomAccessFile> random;
  n.Note("open", n.fs->NewSequentialFile(n.Path("log"), n.options, &follower, nullptr));
  n.Note("open", n.fs->NewRandomAccessFile(n.Path("log"), n.options, &random, nullptr));
  std::string scratch(40000, 0);
  Slice read;
  for (int i = 0; i < 40; i++) {
    n.Note("append", file->Append(Bytes(i, 1 + i * 37), n.io, nullptr));
    n.Note("flush", file->Flush(n.io, nullptr));
    if (i % 5 == 4) n.Note("sync", file->Sync(n.io, nullptr));
    IOStatus status = follower->Read(scratch.size(), n.io, &read, scratch.data(), nullptr);
    n.Note("follow", status, Digest(read));
    status = random->Read(i, scratch.size(), n.io, &read, scratch.data(), nullptr);
    n.Note("whole", status, Digest(read));
    n.Size("log");
    if (i == 20) n.Note("link", n.fs->LinkFile(n.Path("log"), n.Path("copy"), n.io, nullptr));
    if (i == 25) n.Note("rename", n.fs->RenameFile(n.Path("log"), n.Path("log"), n.io, nullptr));
    if (i == 30) n.Note("delete", n.fs->DeleteFile(n.Path("copy"), n.io, nullptr));
  }
  std::vector<Env::FileAttributes> attributes;
  const IOStatus status = n.fs->GetChildrenFileAttributes(n.dir, n.io, &attributes, nullptr);
  std::string sizes;
  for (const auto& one : attributes) sizes += one.name + "=" + std::to_string(one.size_bytes) + " ";
  n.Note("attributes", status, sizes);
  n.Note("delete", n.fs->DeleteFile(n.Path("log"), n.io, nullptr));
  n.Note("append after deletion", file->Append("more", n.io, nullptr));
  n.Note("sync", file->Sync(n.io, nullptr));
  n.Note("close", file->Close(n.io, nullptr));
  n.Children("");
}

void LocksAndDirectories(Notes& n) {
  FileLock* lock = nullptr;
  FileLock* other = nullptr;
  n.Note("lock", n.fs->LockFile(n.Path("LOCK"), n.io, &lock, nullptr));
  n.Note("again", n.fs->LockFile(n.Path("LOCK"), n.io, &other, nullptr));
  n.Note("none", static_cast<uint64_t>(other == nullptr));
  n.Note("another file", n.fs->LockFile(n.Path("OTHER"), n.io, &other, nullptr));
  n.Note("unlock", n.fs->UnlockFile(other, n.io, nullptr));
  n.Note("unlock", n.fs->UnlockFile(lock, n.io, nullptr));
  n.Note("lock again", n.fs->LockFile(n.Path("LOCK"), n.io, &lock, nullptr));
  n.Note("unlock", n.fs->UnlockFile(lock, n.io, nullptr));
  n.Note("below nothing", n.fs->LockFile(n.Path("none/LOCK"), n.io, &lock, nullptr));
  n.Children("");

  std::unique_ptr<FSDirectory> directory;
  n.Note("directory", n.fs->NewDirectory(n.dir, n.io, &directory, nullptr));
  n.Note("sync", directory->Fsync(n.io, nullptr));
  using ROCKSDB_NAMESPACE::DirFsyncOptions;
  for (const auto reason : {DirFsyncOptions::kNewFileSynced, DirFsyncOptions::kDirRenamed,
                            DirFsyncOptions::kFileDeleted, DirFsyncOptions::kDefault}) {
    n.Note("sync", directory->FsyncWithDirOptions(n.io, nullptr, DirFsyncOptions(reason)));
  }
  n.Note("sync", directory->FsyncWithDirOptions(n.io, nullptr, DirFsyncOptions(n.Path("LOCK"))));
  n.Note("close", directory->Close(n.io, nullptr));
  n.Note("no directory", n.fs->NewDirectory(n.Path("none"), n.io, &directory, nullptr));

  std::string path;
  n.Note("absolute", n.fs->GetAbsolutePath("/a/b", n.io, &path, nullptr), path);
  const IOStatus status = n.fs->GetTestDirectory(n.io, &path, nullptr);
  n.Note("test directory", status, std::to_string(n.fs->FileExists(path, n.io, nullptr).ok()));
  uint64_t bytes = 0;
  n.Note("free space", n.fs->GetFreeSpace(n.dir, n.io, &bytes, nullptr));
  n.Note("free space of nothing", n.fs->GetFreeSpace(n.Path("none"), n.io, &bytes, nullptr));
  n.Note("some", static_cast<uint64_t>(bytes > 0));

  std::shared_ptr<ROCKSDB_NAMESPACE::Logger> logger;
  n.Note("logger", n.fs->NewLogger(n.Path("LOG"), n.io, &logger, nullptr));
  ROCKSDB_NAMESPACE::Info(logger.get(), "a line %d", 7);
  logger->Flush();
  std::string text;
  n.Note("log", ROCKSDB_NAMESPACE::ReadFileToString(n.fs, n.Path("LOG"), &text));
  n.Note("has the line", static_cast<uint64_t>(text.find("a line 7\n") != std::string::npos));
  logger.reset();
  n.Note("logger below nothing", n.fs->NewLogger(n.Path("none/LOG"), n.io, &logger, nullptr));

  n.Write("old", Bytes(1, 100));
  std::unique_ptr<FSWritableFile> file;
  n.Note("reuse", n.fs->ReuseWritableFile(n.Path("new"), n.Path("old"), n.options, &file, nullptr));
  n.Note("append", file->Append(Bytes(2, 200), n.io, nullptr));
  n.Note("close", file->Close(n.io, nullptr));
  n.Read("new");
  n.Children("");
  n.Note("reuse nothing", n.fs->ReuseWritableFile(n.Path("new"), n.Path("none"), n.options, &file, nullptr));
  n.Note("write", ROCKSDB_NAMESPACE::WriteStringToFile(n.fs, "text", n.Path("text"), true));
  n.Read("text");
}

// A database with everything that opens, writes and reads it.
void Database(Notes& n) {
  using namespace ROCKSDB_NAMESPACE;
  std::unique_ptr<Env> env = NewCompositeEnv(std::shared_ptr<FileSystem>(n.fs, [](FileSystem*) {}));
  Options options;
  options.env = env.get();
  options.create_if_missing = true;
  options.write_buffer_size = 64 << 10;
  options.target_file_size_base = 64 << 10;
  options.max_bytes_for_level_base = 256 << 10;
  options.recycle_log_file_num = 2;
  for (int round = 0; round < 3; round++) {
    DB* opened = nullptr;
    const Status status = DB::Open(options, n.Path("db"), &opened);
    n.lines.push_back("open: " + status.ToString());
    if (!status.ok()) return;
    std::unique_ptr<DB> db(opened);
    for (int key = 0; key < 3000; key++) {
      WriteOptions write;
      write.sync = key % 500 == 0;
      const std::string name = std::to_string((key * 7919 + round) % 5000);
      const Status put = key % 9 == 0 ? db->Delete(write, name) : db->Put(write, name, Bytes(key, 200));
      if (!put.ok()) n.lines.push_back("put: " + put.ToString());
    }
    n.lines.push_back("compact: " + db->CompactRange(CompactRangeOptions(), nullptr, nullptr).ToString());
    n.lines.push_back("verify: " + db->VerifyChecksum().ToString());
    std::string all;
    std::unique_ptr<Iterator> each(db->NewIterator(ReadOptions()));
    for (each->SeekToFirst(); each->Valid(); each->Next()) all += each->key().ToString() + each->value().ToString();
    n.lines.push_back("all: " + each->status().ToString() + Digest(all));
    each.reset();
    n.lines.push_back("close: " + db->Close().ToString());
  }
  n.lines.push_back("destroy: " + DestroyDB(n.Path("db"), options).ToString());
  n.Children("");
}

struct Story {
  const char* name;
  void (*run)(Notes&);
};

const Story kStories[] = {{"names", Names},
                          {"renames and links", RenamesAndLinks},
                          {"appending", Appending},
                          {"other writes", OtherWrites},
                          {"reading", Reading},
                          {"following", Following},
                          {"locks and directories", LocksAndDirectories},
                          {"database", Database}};

}  // namespace

void CompareWithPosix(const std::string& host, FileSystem* polder) {
  for (const Story& story : kStories) {
    const IOOptions io;
    const std::string name = std::string("story ") + story.name;
    Notes expected(FileSystem::Default().get(), host + "/" + name);
    Notes found(polder, "/" + name);
    for (Notes* notes : {&expected, &found}) {
      EXPECT_OK(notes->fs->CreateDir(notes->dir, io, nullptr));
      story.run(*notes);
    }
    const size_t lines = std::max(expected.lines.size(), found.lines.size());
    expected.lines.resize(lines, "nothing");
    found.lines.resize(lines, "nothing");
    for (size_t i = 0; i < lines; i++) {
      if (!Expect(found.lines[i] == expected.lines[i],
                  name + ", line " + std::to_string(i) + ": `" + found.lines[i] + "`, but POSIX: `" +
                      expected.lines[i] + "`" + (i > 0 ? " after `" + expected.lines[i - 1] + "`" : ""))) {
        break;
      }
    }
    printf("%s: %zu results are the same\n", story.name, lines);
  }
}

}  // namespace rocksdb_polder_tests
